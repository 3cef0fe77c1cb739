//! Proxies that put faults between a run and a real etcd: on one request of gRPC, or on a connection.
//!
//! Apart from `support`, because not everybody who uses that needs HTTP/2.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod grpc;
mod tcp;
mod wire;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub use grpc::{Gate, GrpcProxy, GrpcRule, Loss, Struck, next_random};
pub use tcp::{TcpFault, TcpProxy};
pub use wire::{Call, Kind, Verdict};

/// A port of the loopback, and the thread that serves it. It ends with the proxy, and all connections with it.
#[derive(Debug)]
struct Serving {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Hands every connection to `serve`.
    fn start<S>(serve: impl Fn(TcpStream) -> S + Send + 'static) -> Self
    where
        S: Future<Output: Send> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback is free");
        let address = listener.local_addr().expect("a listener has an address");
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || run(listener, serve, ended));
        Self { address, end: Some(end), thread: Some(thread) }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn run<S>(listener: TcpListener, serve: impl Fn(TcpStream) -> S, ended: oneshot::Receiver<()>)
where
    S: Future<Output: Send> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a listener need not block");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener can be polled");
        let accept = async {
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(serve(client));
                }
            }
        };
        tokio::select! {
            _ = ended => {}
            () = accept => {}
        }
    });
}

/// The address of a server at `http://HOST:PORT`.
fn target(endpoint: &str) -> SocketAddr {
    let target = endpoint.strip_prefix("http://").expect("an endpoint like http://HOST:PORT");
    target.parse().expect("an endpoint is a socket's address")
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            // It may have ended by a panic, which shows by itself.
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
