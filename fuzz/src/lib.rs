//! What must hold for every input, one module per fuzz target.
//!
//! The targets are a line each; the properties stand here, where a stable toolchain can check them
//! and run the committed seeds through them (`cargo test`). Inputs are text wherever they can be, so
//! that a seed can be read and written by hand; only `decide` takes `arbitrary`'s encoding
//! (`cargo fuzz fmt decide SEED` shows it).
#![forbid(unsafe_code)]

pub mod body_end;
pub mod decide;
pub mod exchange;
pub mod forwarding;
pub mod launch_plan;
pub mod policy_document;
pub mod request_target;

mod second_opinion;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use arbitrary::{Arbitrary, Unstructured};

    use super::*;

    fn each_seed(target: &str, check: impl Fn(&[u8])) {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(target);
        let mut count = 0;
        for seed in fs::read_dir(seeds).expect("a folder of seeds") {
            let seed = seed.expect("an entry").path();
            println!("{}", seed.display());
            check(&fs::read(seed).expect("a file"));
            count += 1;
        }
        assert!(count > 0, "no seeds for {target}");
    }

    #[test]
    fn seeds_of_request_target() {
        each_seed("request_target", request_target::check);
    }

    #[test]
    fn seeds_of_policy_document() {
        each_seed("policy_document", policy_document::check);
    }

    #[test]
    fn seeds_of_decide() {
        each_seed("decide", |seed| {
            let case = decide::Case::arbitrary_take_rest(Unstructured::new(seed));
            decide::check(&case.expect("a whole case"));
        });
    }

    #[test]
    fn seeds_of_forwarding() {
        each_seed("forwarding", forwarding::check);
    }

    #[test]
    fn seeds_of_body_end() {
        each_seed("body_end", body_end::check);
    }

    #[test]
    fn seeds_of_launch_plan() {
        each_seed("launch_plan", launch_plan::check);
    }

    #[test]
    fn seeds_of_exchange() {
        each_seed("exchange", exchange::check);
    }
}
