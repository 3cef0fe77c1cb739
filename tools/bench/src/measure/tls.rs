//! Single processes and a storm again, with a server that wants a certificate and floors that show one.

use crate::lab::{Lab, Wire, plain_network};
use crate::measure::single::{Floors, ROUNDS_WARM_UP, Verbs};
use crate::measure::storms::{Load, Weather};
use crate::options::{Options, Section};
use crate::results::{Results, Suffix};

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Mtls);
    let config = plain_network("single");
    let (mut floors, mut verbs) = (Floors::default(), Verbs::default());
    for round in 0..ROUNDS_WARM_UP + options.rounds {
        if round == ROUNDS_WARM_UP {
            (floors, verbs) = (Floors::default(), Verbs::default());
        }
        floors.round(&lab);
        verbs.round(lab.node(), &format!("round-{round}"), &config);
    }
    floors.report(Section::Tls, results);
    verbs.report(Section::Tls, results);

    let mut weather = Weather::new(&lab, Section::Tls, Suffix::default(), options.storm);
    let mut many = Load::many_networks(&lab, "many");
    weather.storm(results, "add-16", "ADDs over 16 networks", || many.add(options.storm));
    weather.report_floor(results);
    lab.cluster.assert_clean();
}
