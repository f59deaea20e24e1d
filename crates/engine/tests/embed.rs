//! Embeddings of a model whose rows are known: its blocks add nothing, so the row of a token is its own unit vector.

mod tiny;

use std::sync::atomic::{AtomicU64, Ordering};

use cera::{Engine, Error, Norm, Options, Part, Pooling, Want};
use cera_backend::Reference;
use tiny::Text;

fn engine(pooling: Option<Pooling>) -> Engine {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("cera-embed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let options = Options { pooling, sequences: 2, context: Some(64), ..Options::default() };
    let engine = Engine::load(&tiny::write(&folder, Text::None), Box::new(Reference), &options);
    std::fs::remove_dir_all(&folder).unwrap();
    engine.unwrap()
}

/// Where a vector is not about 0, and what it is there.
fn peaks(embedding: &[f32]) -> Vec<(usize, f32)> {
    let peaks = embedding.iter().enumerate().filter(|(_, v)| v.abs() > 1e-6);
    peaks.map(|(i, v)| (i, (v * 1e4).round() / 1e4)).collect()
}

#[test]
fn each_pooling_gives_its_rows() {
    let texts = [vec![65, 66, 67], vec![68], vec![65; 60], vec![66, 65]];
    let run = |pooling| engine(Some(pooling)).embed(&texts, Norm::L2).unwrap();
    let third = (1.0f32 / 3.0).sqrt();
    let third = (third * 1e4).round() / 1e4;
    let mean: Vec<_> = run(Pooling::Mean).iter().map(|e| peaks(e)).collect();
    assert_eq!(mean[0], [(65, third), (66, third), (67, third)]);
    assert_eq!((&mean[1][..], &mean[2][..]), (&[(68, 1.0)][..], &[(65, 1.0)][..]));
    let half = (0.5f32.sqrt() * 1e4).round() / 1e4;
    assert_eq!(mean[3], [(65, half), (66, half)]);
    let last: Vec<_> = run(Pooling::Last).iter().map(|e| peaks(e)).collect();
    assert_eq!(last, [[(67, 1.0)], [(68, 1.0)], [(65, 1.0)], [(65, 1.0)]]);
    let first: Vec<_> = run(Pooling::Cls).iter().map(|e| peaks(e)).collect();
    assert_eq!(first, [[(65, 1.0)], [(68, 1.0)], [(65, 1.0)], [(66, 1.0)]]);
    let rows = run(Pooling::None);
    let width = engine(Some(Pooling::None)).embedding_width();
    assert_eq!(rows.iter().map(|e| e.len() / width).collect::<Vec<_>>(), [3, 1, 60, 2]);
    assert_eq!(peaks(&rows[0][width..2 * width]), [(66, 1.0)]);
}

#[test]
fn lengths_stay_where_they_are_to() {
    let mut engine = engine(Some(Pooling::Last));
    let [plain, unit] = [Norm::None, Norm::L2].map(|norm| engine.embed(&[vec![65]], norm).unwrap().remove(0));
    // The last norm makes a unit vector as long as the root of its width, but for its epsilon.
    let expected = 1.0 / (1.0 / plain.len() as f32 + 1e-5).sqrt();
    assert!((plain[65] - expected).abs() < 1e-3, "{} for {expected}", plain[65]);
    assert!((unit[65] - 1.0).abs() < 1e-6);
}

#[test]
fn what_does_not_fit_is_refused_with_its_numbers() {
    let mut embedding = engine(Some(Pooling::Mean));
    let error = embedding.embed(&[vec![65; 65]], Norm::L2).unwrap_err();
    assert!(matches!(error, Error::Context { tokens: 65, context: 64 }), "{error}");
    let error = embedding.embed(&[vec![65], vec![]], Norm::L2).unwrap_err();
    assert!(matches!(error, Error::Request(_)), "{error}");
    let error = embedding.embed(&[vec![1_000_000]], Norm::L2).unwrap_err();
    assert!(matches!(error, Error::Vocabulary { token: 1_000_000, .. }), "{error}");
    assert!(embedding.embed(&[], Norm::L2).unwrap().is_empty());

    let mut sequence = embedding.sequence();
    sequence.append(&[65]).unwrap();
    let mut parts = [Part { sequence: &mut sequence, rows: 1, want: Want::Logits }];
    let error = embedding.step(&mut parts).unwrap_err();
    assert!(error.to_string().contains("embeddings"), "{error}");
    let error = engine(None).embed(&[vec![65]], Norm::L2).unwrap_err();
    assert!(error.to_string().contains("logits"), "{error}");
}
