//! Proxies that put faults between a run and a real etcd: on one request of gRPC, or on a connection.
//!
//! Apart from `support`, because not everybody who uses that needs HTTP/2.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod grpc;
mod tcp;
mod wire;

use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub(crate) use grpc::{Gate, GrpcProxy, GrpcRule, Loss, Struck, next_random};
pub(crate) use tcp::{TcpFault, TcpProxy};
pub(crate) use wire::{Call, Kind, Verdict};

/// The thread that a proxy works in; it ends with the proxy.
#[derive(Debug)]
struct Serving {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn new(end: oneshot::Sender<()>, thread: JoinHandle<()>) -> Self {
        Self { end: Some(end), thread: Some(thread) }
    }
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
