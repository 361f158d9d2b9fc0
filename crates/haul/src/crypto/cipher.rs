//! Chooses the cipher that seals, and the library: AES-GCM where the CPU has it, ChaCha20-Poly1305
//! elsewhere. The libraries differ most where only 256-bit vectors carry AES (VAES without
//! AVX-512). There `ring` does several blocks at a time and AWS-LC one, at twice the cost; with
//! AVX-512 AWS-LC is ahead. Both implement the same TLS, so each end chooses for itself.

use rustls::{
    Side, SupportedCipherSuite, crypto,
    quic::{self, Version},
};

use super::Key;

/// Cipher and library that seal datagrams on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealing {
    /// The cipher preferred by this end, as its standard names it.
    pub cipher: &'static str,
    /// The library whose code runs.
    pub library: &'static str,
    /// True if the library does several blocks in one instruction.
    pub wide: bool,
}

/// Cipher and library that seal datagrams here, of those that the crate was built with.
#[must_use]
pub fn sealing() -> Sealing {
    let cpu = Cpu::detect();
    let library = library(cpu);
    Sealing {
        cipher: if cpu.aes {
            "AES-128-GCM"
        } else {
            "ChaCha20-Poly1305"
        },
        library: library.name(),
        wide: cpu.aes && library.is_wide(cpu),
    }
}

/// A key of the preferred cipher for timing it. Anybody can derive it (RFC 9001 §5.2), so it protects
/// nothing.
#[must_use]
pub fn key_for_timing() -> Option<Key> {
    public_key(*suites().first()?)
}

fn public_key(suite: SupportedCipherSuite) -> Option<Key> {
    let suite = suite.tls13()?;
    let quic = quic::Suite {
        suite,
        quic: suite.quic?,
    };
    let keys = quic.keys(b"farhaul", Side::Client, Version::V1);
    Some(Key::Tls(keys.local.packet))
}

/// The suites in this machine's order of preference.
pub(super) fn suites() -> Vec<SupportedCipherSuite> {
    let cpu = Cpu::detect();
    let [aes128, aes256, chacha] = library(cpu).suites();
    if cpu.aes {
        vec![aes128, aes256, chacha]
    } else {
        vec![chacha, aes128, aes256]
    }
}

/// The suite of keys that anyone can derive.
pub(super) fn aes128() -> SupportedCipherSuite {
    let [aes128, ..] = library(Cpu::detect()).suites();
    aes128
}

/// True if the CPU encrypts AES itself.
pub(super) fn aes_hardware() -> bool {
    Cpu::detect().aes
}

/// CPU features that the choice rests on.
#[derive(Clone, Copy)]
struct Cpu {
    /// True if the CPU encrypts AES and multiplies for GCM.
    aes: bool,
    /// True if the CPU does both on 256-bit vectors.
    #[cfg_attr(
        not(feature = "ring"),
        expect(dead_code, reason = "AWS-LC does not use them")
    )]
    aes256: bool,
    /// True if the CPU does both on 512-bit vectors.
    #[cfg_attr(
        not(feature = "aws-lc-rs"),
        expect(dead_code, reason = "ring does not use them")
    )]
    aes512: bool,
}

impl Cpu {
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let aes = has!("aes") && has!("pclmulqdq");
        let aes256 = aes && has!("vaes") && has!("vpclmulqdq") && has!("avx2") && has!("bmi2");
        let aes512 =
            aes256 && has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl");
        Self {
            aes,
            aes256,
            aes512,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn detect() -> Self {
        use std::arch::is_aarch64_feature_detected as has;
        Self {
            aes: has!("aes") && has!("pmull"),
            aes256: false,
            aes512: false,
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const fn detect() -> Self {
        Self {
            aes: false,
            aes256: false,
            aes512: false,
        }
    }
}

/// A library the crate was built with.
#[derive(Clone, Copy)]
enum Library {
    #[cfg(feature = "aws-lc-rs")]
    AwsLc,
    #[cfg(feature = "ring")]
    Ring,
}

#[cfg(all(feature = "aws-lc-rs", feature = "ring"))]
const fn library(cpu: Cpu) -> Library {
    if cpu.aes256 && !cpu.aes512 {
        Library::Ring
    } else {
        Library::AwsLc
    }
}

#[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
const fn library(_: Cpu) -> Library {
    Library::AwsLc
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
const fn library(_: Cpu) -> Library {
    Library::Ring
}

impl Library {
    const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "aws-lc-rs")]
            Self::AwsLc => "AWS-LC",
            #[cfg(feature = "ring")]
            Self::Ring => "ring",
        }
    }

    const fn is_wide(self, cpu: Cpu) -> bool {
        match self {
            #[cfg(feature = "aws-lc-rs")]
            Self::AwsLc => cpu.aes512,
            #[cfg(feature = "ring")]
            Self::Ring => cpu.aes256,
        }
    }

    /// The two lengths of AES, then `ChaCha20`.
    fn suites(self) -> [SupportedCipherSuite; 3] {
        match self {
            #[cfg(feature = "aws-lc-rs")]
            Self::AwsLc => {
                use crypto::aws_lc_rs::cipher_suite as of;
                [
                    of::TLS13_AES_128_GCM_SHA256,
                    of::TLS13_AES_256_GCM_SHA384,
                    of::TLS13_CHACHA20_POLY1305_SHA256,
                ]
            }
            #[cfg(feature = "ring")]
            Self::Ring => {
                use crypto::ring::cipher_suite as of;
                [
                    of::TLS13_AES_128_GCM_SHA256,
                    of::TLS13_AES_256_GCM_SHA384,
                    of::TLS13_CHACHA20_POLY1305_SHA256,
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::TAG;

    const NARROW: Cpu = Cpu {
        aes: true,
        aes256: false,
        aes512: false,
    };
    const HALF: Cpu = Cpu {
        aes256: true,
        ..NARROW
    };
    const FULL: Cpu = Cpu {
        aes512: true,
        ..HALF
    };

    #[test]
    fn every_library_seals_alike() {
        let sealed: Vec<Vec<u8>> = [NARROW, HALF, FULL]
            .into_iter()
            .map(|cpu| {
                let key = public_key(library(cpu).suites()[0]).unwrap();
                let mut datagram = vec![3; 20 + 100 + TAG];
                key.seal(5, &mut datagram, 20);
                datagram
            })
            .collect();
        assert_eq!(sealed[0], sealed[1]);
        assert_eq!(sealed[0], sealed[2]);
    }

    #[test]
    fn the_key_for_timing_seals() {
        let mut datagram = vec![0; 200];
        key_for_timing().unwrap().seal(0, &mut datagram, 20);
        assert_ne!(datagram[20..], [0; 180]);
    }

    #[cfg(all(feature = "aws-lc-rs", feature = "ring"))]
    #[test]
    fn the_library_that_is_wide_here_is_taken() {
        assert_eq!(library(NARROW).name(), "AWS-LC");
        assert_eq!(library(HALF).name(), "ring");
        assert!(library(HALF).is_wide(HALF));
        assert_eq!(library(FULL).name(), "AWS-LC");
        assert!(library(FULL).is_wide(FULL));
    }
}
