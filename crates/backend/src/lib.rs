//! The backend trait and the reference backend that defines every op.
