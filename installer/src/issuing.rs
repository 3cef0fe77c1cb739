//! What all certificates that this program signs have in common, and the files of an authority.

use std::path::Path;

use rcgen::{CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, KeyUsagePurpose};
use time::{Duration, OffsetDateTime};

use crate::failure::Failure;
use crate::files;

/// A certificate is valid from this long before now, because the clocks of nodes differ.
pub(crate) const EARLIER: Duration = Duration::hours(1);

/// Those of a certificate for these names, which is valid for so long.
pub(crate) fn params(
    common_name: &str,
    names: &[String],
    life: Duration,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - EARLIER;
    params.not_after = now + life;
    Ok(params)
}

/// The same for one that signs no others.
pub(crate) fn leaf_params(
    common_name: &str,
    names: &[String],
    usages: &[ExtendedKeyUsagePurpose],
    life: Duration,
) -> Result<CertificateParams, Error> {
    let mut params = params(common_name, names, life)?;
    params.extended_key_usages = usages.to_vec();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// `tls.crt` and `tls.key` in a folder, PEM.
pub(crate) fn pair_in(folder: &Path) -> Result<[String; 2], Failure> {
    let text = |name: &str| {
        let path = folder.join(name);
        let text = String::from_utf8(files::read(&path)?);
        text.map_err(|_| Failure::new(format!("{} is not PEM", path.display())))
    };
    Ok([text("tls.crt")?, text("tls.key")?])
}
