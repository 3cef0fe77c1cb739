//! Proxies that put faults between a run and a real etcd: on one request of gRPC, or on a connection.
//!
//! Apart from `support`, because not everybody who uses that needs HTTP/2.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod grpc;
mod tcp;
mod wire;

pub(crate) use grpc::{Gate, GrpcProxy, GrpcRule, Loss, Struck, next_random};
pub(crate) use tcp::{TcpFault, TcpProxy};
pub(crate) use wire::{Call, Kind, Verdict};
