//! `docs/support.md` says what the checks find.

use cera_conformance::support;

/// The page without its figures, whose last digit may differ from one system's mathematics to the next.
fn words(page: &str) -> Vec<String> {
    let figure = |cell: &str| cell.trim().parse::<f64>().is_ok();
    let cell = |cell: &str| if figure(cell) { "#".to_owned() } else { cell.to_owned() };
    page.lines().map(|line| line.split('|').map(cell).collect::<Vec<_>>().join("|")).collect()
}

#[test]
fn the_page_is_what_the_checks_find() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/support.md");
    let (found, page) = (support().unwrap(), std::fs::read_to_string(path).unwrap());
    let (found, page) = (words(&found), words(&page));
    let first = found.iter().zip(&page).find(|(found, page)| found != page);
    assert_eq!(
        first, None,
        "left: what is found. To write it: cargo run --release -p cera-conformance --example support docs/support.md"
    );
    assert_eq!(found.len(), page.len());
}
