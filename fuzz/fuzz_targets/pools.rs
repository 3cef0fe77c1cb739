#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| metes_fuzz::target("pools")(data));
