//! The key/value part of a file, with getters that say what is wrong.

use std::borrow::Cow;

use indexmap::IndexMap;

use crate::{Array, Error, Value};

/// Keys and values in the order of the file. Each key occurs once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: IndexMap<String, Value>,
}

/// A Rust type that a metadata value can be read as.
///
/// Integers are taken from any integer type of the file, whatever its width and sign, where the value fits;
/// floats from `f32` and `f64`. Nothing else is converted: a number is never read as a string or a truth value.
pub trait FromValue<'a>: Sized {
    /// Reads `value`, which belongs to `key`.
    ///
    /// # Errors
    /// [`Error::WrongType`] or [`Error::OutOfRange`], both naming `key`.
    fn from_value(key: &str, value: &'a Value) -> Result<Self, Error>;
}

impl Metadata {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key`, at the end where it is new. Gives back the value that it had.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.entries.insert(key.into(), value.into())
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// The same without some keys.
    pub fn without(mut self, keys: &[&str]) -> Self {
        self.entries.retain(|key, _| !keys.contains(&key.as_str()));
        self
    }

    /// All keys and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key` as a `T`; `None` where the key is absent.
    ///
    /// # Errors
    /// As [`FromValue::from_value`].
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        self.get(key).map(|value| T::from_value(key, value)).transpose()
    }

    /// The value of `key` as a `T`.
    ///
    /// # Errors
    /// [`Error::Missing`], or as [`FromValue::from_value`].
    pub fn need<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.find(key)?.ok_or_else(|| Error::Missing { key: key.into() })
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $type:ty;)*) => {
        /// [`Metadata::find`] for the usual types, with its errors.
        impl Metadata {
            $(
                $(#[$doc])*
                pub fn $name(&self, key: &str) -> Result<Option<$type>, Error> {
                    self.find(key)
                }
            )*
        }
    };
}

getters! {
    /// An integer.
    u64 -> u64;
    /// An integer.
    u32 -> u32;
    /// An integer.
    i32 -> i32;
    /// A float; `f64` is rounded.
    f32 -> f32;
    /// A truth value.
    bool -> bool;
    /// A string.
    str -> &str;
    /// An array of strings.
    strings -> &[String];
    /// An array of floats, borrowed where the file has `f32`.
    f32s -> Cow<'_, [f32]>;
    /// An array of integers, borrowed where the file has `i32`.
    i32s -> Cow<'_, [i32]>;
    /// An array of integers, borrowed where the file has `u32`.
    u32s -> Cow<'_, [u32]>;
    /// An array of truth values.
    bools -> &[bool];
}

fn wrong_type(key: &str, value: &Value, wanted: &'static str) -> Error {
    Error::WrongType { key: key.into(), wanted, found: value.type_name() }
}

/// Narrows a double. A finite number that only infinity could stand for is refused.
fn narrow(key: &str, value: f64) -> Result<f32, Error> {
    let narrowed = value as f32;
    if value.is_finite() && narrowed.is_infinite() {
        return Err(Error::OutOfRange { key: key.into(), value: value.to_string(), wanted: "f32" });
    }
    Ok(narrowed)
}

macro_rules! integers {
    ($($target:ident $name:literal;)*) => {$(
        impl FromValue<'_> for $target {
            fn from_value(key: &str, value: &Value) -> Result<Self, Error> {
                let fit = |fits: Option<Self>, value: &dyn ToString| {
                    fits.ok_or_else(|| Error::OutOfRange {
                        key: key.into(),
                        value: value.to_string(),
                        wanted: $name,
                    })
                };
                match value {
                    Value::U8(v) => fit((*v).try_into().ok(), v),
                    Value::I8(v) => fit((*v).try_into().ok(), v),
                    Value::U16(v) => fit((*v).try_into().ok(), v),
                    Value::I16(v) => fit((*v).try_into().ok(), v),
                    Value::U32(v) => fit((*v).try_into().ok(), v),
                    Value::I32(v) => fit((*v).try_into().ok(), v),
                    Value::U64(v) => fit((*v).try_into().ok(), v),
                    Value::I64(v) => fit((*v).try_into().ok(), v),
                    _ => Err(wrong_type(key, value, $name)),
                }
            }
        }
    )*};
}
integers! {
    u64 "u64";
    u32 "u32";
    i64 "i64";
    i32 "i32";
    usize "usize";
}

macro_rules! integer_arrays {
    ($($target:ident $variant:ident $name:literal;)*) => {$(
        impl<'a> FromValue<'a> for Cow<'a, [$target]> {
            fn from_value(key: &str, value: &'a Value) -> Result<Self, Error> {
                // Through the scalar reading, so that both accept the same numbers.
                fn all<T: Copy + Into<Value>>(key: &str, items: &[T]) -> Result<Vec<$target>, Error> {
                    items.iter().map(|&item| $target::from_value(key, &item.into())).collect()
                }
                if let Value::Array(Array::$variant(items)) = value {
                    return Ok(Cow::Borrowed(items));
                }
                match value {
                    Value::Array(Array::U8(items)) => all(key, items),
                    Value::Array(Array::I8(items)) => all(key, items),
                    Value::Array(Array::U16(items)) => all(key, items),
                    Value::Array(Array::I16(items)) => all(key, items),
                    Value::Array(Array::U32(items)) => all(key, items),
                    Value::Array(Array::I32(items)) => all(key, items),
                    Value::Array(Array::U64(items)) => all(key, items),
                    Value::Array(Array::I64(items)) => all(key, items),
                    _ => Err(wrong_type(key, value, $name)),
                }
                .map(Cow::Owned)
            }
        }
    )*};
}
integer_arrays! {
    u64 U64 "array of u64";
    u32 U32 "array of u32";
    i32 I32 "array of i32";
}

impl FromValue<'_> for f32 {
    fn from_value(key: &str, value: &Value) -> Result<Self, Error> {
        match value {
            Value::F32(v) => Ok(*v),
            Value::F64(v) => narrow(key, *v),
            _ => Err(wrong_type(key, value, "f32")),
        }
    }
}

impl<'a> FromValue<'a> for Cow<'a, [f32]> {
    fn from_value(key: &str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Array(Array::F32(items)) => Ok(Cow::Borrowed(items)),
            Value::Array(Array::F64(items)) => items.iter().map(|&item| narrow(key, item)).collect(),
            _ => Err(wrong_type(key, value, "array of f32")),
        }
    }
}

impl FromValue<'_> for bool {
    fn from_value(key: &str, value: &Value) -> Result<Self, Error> {
        match value {
            Value::Bool(v) => Ok(*v),
            _ => Err(wrong_type(key, value, "bool")),
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    fn from_value(key: &str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::String(v) => Ok(v),
            _ => Err(wrong_type(key, value, "string")),
        }
    }
}

impl<'a> FromValue<'a> for &'a [String] {
    fn from_value(key: &str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Array(Array::String(items)) => Ok(items),
            _ => Err(wrong_type(key, value, "array of string")),
        }
    }
}

impl<'a> FromValue<'a> for &'a [bool] {
    fn from_value(key: &str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Array(Array::Bool(items)) => Ok(items),
            _ => Err(wrong_type(key, value, "array of bool")),
        }
    }
}
