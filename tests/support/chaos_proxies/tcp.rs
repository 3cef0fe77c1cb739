//! A TCP proxy that treats its connections as bad networks do.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::{Serving, target};

/// The fault of every connection, those that are open too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpFault {
    /// Nothing: bytes are handed on.
    Pass,
    /// Reset, at once.
    Reset,
    /// Accepted, and left alone: nothing is read and nothing comes. It goes on when the fault is over.
    Blackhole,
    /// The server's side is gone, and the client is not told: its bytes are taken and thrown away. Connections that
    /// this has befallen stay so.
    HalfOpen,
    /// Each part travels so much later.
    Delay(Duration),
    /// After so many bytes of answers the connection is reset; those before the fault began count too.
    Cut(usize),
}

/// On drop it closes every connection.
pub struct TcpProxy {
    fault: watch::Sender<TcpFault>,
    serving: Serving,
}

impl TcpProxy {
    /// Before a server at `http://HOST:PORT`.
    pub fn before(endpoint: &str) -> Self {
        let fault = watch::Sender::new(TcpFault::Pass);
        let connection = TcpConnection { faults: fault.subscribe(), target: target(endpoint) };
        let serving = Serving::start(move |client| connection.clone().serve(client));
        Self { fault, serving }
    }

    /// The address for clients.
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// From now on, for connections that are open and for those that come.
    pub fn set(&self, fault: TcpFault) {
        self.fault.send_replace(fault);
    }
}

#[derive(Clone)]
struct TcpConnection {
    faults: watch::Receiver<TcpFault>,
    target: SocketAddr,
}

impl TcpConnection {
    async fn serve(mut self, mut client: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        // Closed by this side, it is reset.
        client.set_zero_linger()?;
        if *self.faults.borrow() == TcpFault::HalfOpen {
            return swallow(client).await;
        }
        self.let_through().await?;
        let mut server = TcpStream::connect(self.target).await?;
        server.set_nodelay(true)?;
        let ended_by = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let (mut there, mut back) = (self.clone(), self.clone());
            let ends = |fault: &TcpFault| matches!(fault, TcpFault::Reset | TcpFault::HalfOpen);
            tokio::select! {
                _ = there.copy(from_client, to_server, false) => None,
                _ = back.copy(from_server, to_client, true) => None,
                fault = self.faults.wait_for(ends) => fault.ok().map(|fault| *fault),
            }
        };
        drop(server);
        if ended_by == Some(TcpFault::HalfOpen) { swallow(client).await } else { Ok(()) }
    }

    /// Copies until one side closes.
    async fn copy(
        &mut self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        are_answers: bool,
    ) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let mut total = 0;
        loop {
            self.let_through().await?;
            let read = from.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            // A fault also holds up the bytes that were read before it began.
            let fault = self.let_through().await?;
            if let TcpFault::Delay(pause) = fault {
                tokio::time::sleep(pause).await;
            }
            let left = match fault {
                TcpFault::Cut(most) if are_answers => read.min(most.saturating_sub(total)),
                _ => read,
            };
            to.write_all(&buffer[..left]).await?;
            total += left;
            if left < read {
                return Ok(());
            }
        }
    }

    /// Waits while nothing may pass.
    async fn let_through(&mut self) -> std::io::Result<TcpFault> {
        let passes = |fault: &TcpFault| !matches!(fault, TcpFault::Blackhole | TcpFault::HalfOpen);
        let gone = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let fault = *self.faults.wait_for(passes).await.map_err(|_| gone())?;
        if fault == TcpFault::Reset { Err(gone()) } else { Ok(fault) }
    }
}

/// Takes all bytes, says nothing.
async fn swallow(mut client: TcpStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while client.read(&mut buffer).await? > 0 {}
    Ok(())
}

impl fmt::Debug for TcpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpProxy").field("address", &self.serving.address).finish_non_exhaustive()
    }
}
