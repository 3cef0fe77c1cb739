//! The commands for people, on a real etcd.

mod cli;
mod completion;
mod doctor;
mod formats;
mod hold;
mod map;
mod mend;
mod pool_auto;
mod pool_move;
mod pool_race;
mod pools;
mod tenants;
mod validate;
