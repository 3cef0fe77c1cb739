//! The places in a network configuration where something about addresses can be said.

use crate::cni::section::Shows;
use crate::cni::{Error, Json, Request, Section, Verb};

/// The sections of one request's network configuration that are read.
pub(super) struct Sections<'a> {
    pub(super) request: &'a Request,
    /// All of the network configuration.
    pub(super) document: Section<'a>,
    pub(super) ipam: Section<'a>,
    /// runtimeConfig.
    pub(super) runtime: Option<Section<'a>>,
    pub(super) args: Option<Section<'a>>,
    pub(super) args_cni: Option<Section<'a>>,
    /// True if the main plugin takes the first address of a subnet where no gateway is configured. The plugin bridge
    /// does, with `isGateway` or `isDefaultGateway`.
    pub(super) first_is_gateway: bool,
}

fn no_ipam(document: &Section<'_>) -> Error {
    let error = Error::invalid_config("the network configuration has no `ipam` section");
    match document.has("plugins") {
        true => error.with_details("it has `plugins`, so it is a list: a runtime gives a plugin one of them"),
        false => error.with_details("write `ipam` beside the `type` of the main plugin"),
    }
}

impl<'a> Sections<'a> {
    pub(super) fn of(request: &'a Request) -> Result<Self, Error> {
        let document = document(request);
        let ipam = document.section("ipam")?;
        let args = document.section("args")?;
        Ok(Self {
            request,
            ipam: ipam.ok_or_else(|| no_ipam(&document))?,
            runtime: document.section("runtimeConfig")?,
            args_cni: args.as_ref().map(|args| args.section("cni")).transpose()?.flatten(),
            args,
            first_is_gateway: ["isGateway", "isDefaultGateway"]
                .iter()
                .any(|key| matches!(document.get(key), Some(Json::Bool(true)))),
            document,
        })
    }

    pub(super) fn is_add(&self) -> bool {
        self.request.verb == Verb::Add
    }
}

/// All of the network configuration.
pub(super) fn document(request: &Request) -> Section<'_> {
    Section::new("", request.config.pairs().unwrap_or_default(), Shows::Values)
}
