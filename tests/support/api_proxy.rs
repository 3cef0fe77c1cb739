//! A proxy before a kube-apiserver into which a test puts faults. It speaks plain HTTP to its clients, notes their
//! requests, and hands on everything that no rule concerns. It does not serve watches: every answer is read whole.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{HttpsClient, Message};
use super::kube::{Access, KubeApi, Reachable};
use super::wait::wait_for;

const ASKED_MAX: Duration = Duration::from_secs(30);

/// On drop it closes every connection, also those that hang.
pub struct ApiProxy {
    shared: Arc<Shared>,
    access: Access,
    address: SocketAddr,
}

/// A request as the proxy saw it, whether it was handed on or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The part after `?`, or nothing.
    pub query: String,
    /// The Accept header, or nothing.
    pub accept: String,
    pub body: String,
}

impl Asked {
    /// The value of a key of the query, as it was written.
    pub fn parameter(&self, key: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}

impl ApiProxy {
    pub fn before(api: &KubeApi) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback is free");
        let address = listener.local_addr().expect("a listener has an address");
        let access = Access { url: format!("http://{address}"), authority: None, ..api.access() };
        let shared = Arc::new(Shared {
            client: api.client(),
            token: access.token.clone(),
            rules: Mutex::default(),
            asked: Mutex::default(),
            open: Mutex::new(Some(HashMap::new())),
            closed: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &serving));
        Self { shared, access, address }
    }

    /// A kubeconfig of the administrator that leads here.
    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        self.access.kubeconfig(folder)
    }

    /// Adds a rule. A request obeys the first rule that concerns it; after a hook the next rules still count.
    pub fn rule(&self, rule: Rule) -> &Self {
        self.shared.rules.lock().expect("no rule panics").push(rule);
        self
    }

    /// Removes all rules. Requests that hang go on hanging.
    pub fn clear(&self) -> &Self {
        self.shared.rules.lock().expect("no rule panics").clear();
        self
    }

    /// Every request so far, in the order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("nobody panics with it").clone()
    }

    /// The requests of one method whose path begins like this.
    pub fn asked_for(&self, method: &str, path: &str) -> Vec<Asked> {
        let mut asked = self.asked();
        asked.retain(|one| one.method == method && one.path.starts_with(path));
        asked
    }

    /// Waits for the first request of this method whose path begins like this.
    #[track_caller]
    pub fn wait_for(&self, method: &str, path: &str) -> Asked {
        wait_for(&format!("a {method} of {path}"), ASKED_MAX, || {
            let first = self.asked_for(method, path).into_iter().next();
            first.ok_or_else(|| format!("so far: {:?}", self.asked()))
        })
    }
}

impl Reachable for ApiProxy {
    fn access(&self) -> Access {
        self.access.clone()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        let Ok(mut open) = self.shared.open.lock() else { return };
        for (_, socket) in open.take().unwrap_or_default() {
            // The client may have gone first.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(open);
        self.shared.closed.notify_all();
        // The accepting thread goes on only when somebody connects.
        let _ = TcpStream::connect(self.address);
    }
}

/// A rule: the requests that it strikes, and their fate: `Rule::get("/api/v1/pods").nth(2).status(500)`.
pub struct Rule {
    method: Option<String>,
    path: String,
    query: Vec<String>,
    nth: Option<u32>,
    seen: u32,
    action: Action,
}

#[derive(Clone)]
enum Action {
    Pass,
    Answer(Message),
    Hang,
    Drop,
    Cut(usize),
    Before(Hook),
    Edit(Editor),
}

type Hook = Arc<Mutex<dyn FnMut() + Send>>;
type Editor = Arc<Mutex<dyn FnMut(&mut Value) + Send>>;

impl Rule {
    /// GET requests whose path begins like this.
    pub fn get(path: &str) -> Self {
        Self::of("GET", path)
    }

    /// Requests of one method whose path begins like this.
    pub fn of(method: &str, path: &str) -> Self {
        Self { method: Some(method.to_owned()), ..Self::any(path) }
    }

    /// Requests of every method whose path begins like this.
    pub fn any(path: &str) -> Self {
        let action = Action::Pass;
        Self { method: None, path: path.to_owned(), query: Vec::new(), nth: None, seen: 0, action }
    }

    /// Only those with this text in their query.
    pub fn query(mut self, part: &str) -> Self {
        self.query.push(part.to_owned());
        self
    }

    /// Only those for a page of a list after its first.
    pub fn later_pages(self) -> Self {
        self.query("continue=")
    }

    /// Only the nth of the requests that it would concern, counted from 1. Without this it concerns all of them.
    pub fn nth(mut self, nth: u32) -> Self {
        self.nth = Some(nth);
        self
    }

    /// Answers with the error that a server gives with this status.
    pub fn status(self, status: u16) -> Self {
        let reason = reason(status);
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "reason": reason, "message": format!("{reason}: put in by a test"), "code": status,
        });
        self.answer(status, body.to_string())
    }

    /// Answers with this status and body, which need not be JSON.
    pub fn answer(self, status: u16, body: impl Into<Vec<u8>>) -> Self {
        let mut answer = Message::new(format!("HTTP/1.1 {status} {}", reason(status)), body)
            .with("Content-Type", "application/json");
        if status == 429 {
            answer = answer.with("Retry-After", "1");
        }
        self.act(Action::Answer(answer))
    }

    /// Never answers.
    pub fn hang(self) -> Self {
        self.act(Action::Hang)
    }

    /// Closes the connection instead of an answer.
    pub fn hang_up(self) -> Self {
        self.act(Action::Drop)
    }

    /// Hands the request on, and closes the connection after so many bytes of the answer's body.
    pub fn cut_after(self, bytes: usize) -> Self {
        self.act(Action::Cut(bytes))
    }

    /// Calls `hook` before the request is handed on, for instance to change something between a list and a get.
    pub fn before(self, hook: impl FnMut() + Send + 'static) -> Self {
        self.act(Action::Before(Arc::new(Mutex::new(hook))))
    }

    /// Hands the request on, and changes the answer, which must be JSON.
    pub fn edit(self, editor: impl FnMut(&mut Value) + Send + 'static) -> Self {
        self.act(Action::Edit(Arc::new(Mutex::new(editor))))
    }

    fn act(self, action: Action) -> Self {
        Self { action, ..self }
    }

    /// Counts the request if it is one of its kind, and tells whether it is the one.
    fn concerns(&mut self, asked: &Asked) -> bool {
        let alike = self.method.as_ref().is_none_or(|method| *method == asked.method)
            && asked.path.starts_with(&self.path)
            && self.query.iter().all(|part| asked.query.contains(part));
        self.seen += u32::from(alike);
        alike && self.nth.is_none_or(|nth| nth == self.seen)
    }
}

/// As the API server words them.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    }
}

struct Shared {
    client: Arc<HttpsClient>,
    token: String,
    rules: Mutex<Vec<Rule>>,
    asked: Mutex<Vec<Asked>>,
    /// By the port of the client; none when the proxy has ended.
    open: Mutex<Option<HashMap<u16, TcpStream>>>,
    closed: Condvar,
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        let Ok(socket) = socket else { continue };
        let (Ok(peer), Ok(copy)) = (socket.peer_addr(), socket.try_clone()) else { continue };
        match &mut *shared.open.lock().expect("nobody panics with it") {
            Some(open) => _ = open.insert(peer.port(), copy),
            None => return,
        }
        let connection = ApiConnection { shared: Arc::clone(shared), socket, port: peer.port() };
        // A client may go at any moment.
        thread::spawn(move || connection.shared.serve(&connection.socket));
    }
}

/// A connection that is closed on drop, also if a hook panics: the client must not wait for an answer then.
struct ApiConnection {
    shared: Arc<Shared>,
    socket: TcpStream,
    port: u16,
}

impl Drop for ApiConnection {
    fn drop(&mut self) {
        // The client may have gone first.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Ok(Some(open)) = self.shared.open.lock().as_deref_mut() {
            open.remove(&self.port);
        }
    }
}

impl Shared {
    /// All requests of one connection, one after the other; it ends with the connection.
    fn serve(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut reader = BufReader::new(socket);
        while let Some(request) = Message::read(&mut reader)? {
            let asked = asked(&request)?;
            self.asked.lock().expect("nobody panics with it").push(asked.clone());
            let Some((answer, cut)) = self.answer(&request, &asked)? else { return Ok(()) };
            let bytes = answer.to_bytes();
            let missing = cut.map_or(0, |cut| answer.body.len().saturating_sub(cut));
            (&mut &*socket).write_all(&bytes[..bytes.len() - missing])?;
            if cut.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The answer, and after how many bytes of its body the connection ends; none if it ends without an answer.
    fn answer(&self, request: &Message, asked: &Asked) -> io::Result<Option<(Message, Option<usize>)>> {
        let (hooks, action) = self.decide(asked);
        for hook in hooks {
            (hook.lock().expect("a hook does not panic"))();
        }
        Ok(match action {
            Action::Pass | Action::Before(_) => Some((self.forward(request)?, None)),
            Action::Answer(answer) => Some((answer, None)),
            Action::Cut(bytes) => Some((self.forward(request)?, Some(bytes))),
            Action::Edit(editor) => {
                let mut answer = self.forward(request)?;
                let mut body = serde_json::from_slice(&answer.body)?;
                (editor.lock().expect("an editor does not panic"))(&mut body);
                answer.body = body.to_string().into_bytes();
                Some((answer, None))
            }
            Action::Drop => None,
            Action::Hang => {
                self.wait_for_end();
                None
            }
        })
    }

    /// Every rule counts the request, also where an earlier one decides. Nothing is run under the lock.
    fn decide(&self, asked: &Asked) -> (Vec<Hook>, Action) {
        let (mut hooks, mut decided) = (Vec::new(), Action::Pass);
        for rule in self.rules.lock().expect("no rule panics").iter_mut() {
            match (rule.concerns(asked), &rule.action, &decided) {
                (true, Action::Before(hook), Action::Pass) => hooks.push(Arc::clone(hook)),
                (true, action, Action::Pass) => decided = action.clone(),
                _ => {}
            }
        }
        (hooks, decided)
    }

    fn forward(&self, request: &Message) -> io::Result<Message> {
        let mut request = request.clone();
        // These headers are about the client's connection, not the server's. A compressed answer could not be edited.
        for name in ["connection", "accept-encoding", "expect"] {
            request.take(name);
        }
        // Some clients keep their token to themselves where there is no TLS.
        if request.header("authorization").is_none() {
            request = request.with("Authorization", format!("Bearer {}", self.token));
        }
        let mut answer = self.client.send(&request)?;
        answer.take("connection");
        Ok(answer)
    }

    fn wait_for_end(&self) {
        let open = self.open.lock().expect("nobody panics with it");
        drop(self.closed.wait_while(open, |open| open.is_some()).expect("nobody panics with it"));
    }
}

fn asked(request: &Message) -> io::Result<Asked> {
    let mut words = request.start.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Asked {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        accept: request.header("accept").unwrap_or_default().to_owned(),
        body: String::from_utf8_lossy(&request.body).into_owned(),
    })
}

impl fmt::Debug for ApiProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiProxy").field("address", &self.address).finish_non_exhaustive()
    }
}
