//! The simulation: worlds that seeds decide, guards that are left out, and the model beside a real etcd.

mod differential;
mod mutants;
mod worlds;
