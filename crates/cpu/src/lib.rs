//! The CPU backend: packed panels, tiers, one wake a step.
