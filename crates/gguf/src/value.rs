//! Metadata values: the thirteen types of the specification.

use std::fmt;

use crate::error::shown;

/// Calls a macro once with every number type: variant, Rust type, id in the file, name, name of an array.
macro_rules! with_numbers {
    ($then:ident) => {
        $then! {
            U8 u8 0 "u8" "array of u8",
            I8 i8 1 "i8" "array of i8",
            U16 u16 2 "u16" "array of u16",
            I16 i16 3 "i16" "array of i16",
            U32 u32 4 "u32" "array of u32",
            I32 i32 5 "i32" "array of i32",
            F32 f32 6 "f32" "array of f32",
            U64 u64 10 "u64" "array of u64",
            I64 i64 11 "i64" "array of i64",
            F64 f64 12 "f64" "array of f64",
        }
    };
}
pub(crate) use with_numbers;

/// Id of a truth value in the file.
pub(crate) const BOOL: u32 = 7;
/// Id of a string in the file.
pub(crate) const STRING: u32 = 8;
/// Id of an array in the file.
pub(crate) const ARRAY: u32 = 9;

/// The value of a metadata key.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant is its type")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array value: one type for all items, stored at its own width. Arrays of arrays are refused.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant is its type")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

macro_rules! describe {
    ($($variant:ident $rust:ty, $id:literal, $name:literal, $array:literal;)*) => {
        impl Value {
            /// The type's number in the file.
            pub fn id(&self) -> u32 {
                match self {
                    $(Value::$variant(_) => $id,)*
                    Value::Array(_) => ARRAY,
                }
            }

            /// The type's name, as errors show it: `u32`, `string`, `array of f32`.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Value::$variant(_) => $name,)*
                    Value::Array(array) => array.type_name(),
                }
            }
        }

        impl Array {
            /// The item type's number in the file.
            pub fn id(&self) -> u32 {
                match self {
                    $(Array::$variant(_) => $id,)*
                }
            }

            /// The array type's name, as errors show it.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Array::$variant(_) => $array,)*
                }
            }

            /// Number of items.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(items) => items.len(),)*
                }
            }
        }

        $(
            impl From<$rust> for Value {
                fn from(value: $rust) -> Self {
                    Value::$variant(value)
                }
            }

            impl From<Vec<$rust>> for Value {
                fn from(items: Vec<$rust>) -> Self {
                    Value::Array(Array::$variant(items))
                }
            }
        )*
    };
}

macro_rules! describe_all {
    ($($variant:ident $rust:ident $id:literal $name:literal $array:literal,)*) => {
        describe! {
            $($variant $rust, $id, $name, $array;)*
            Bool bool, 7, "bool", "array of bool";
            String String, 8, "string", "array of string";
        }
    };
}
with_numbers!(describe_all);

impl Array {
    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::String(value.into())
    }
}

/// One line for people: strings are quoted, escaped and cut; of an array the first items and the length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        macro_rules! show {
            ($($variant:ident $rust:ident $id:literal $name:literal $array:literal,)*) => {
                match self {
                    $(Value::$variant(value) => write!(f, "{value}"),)*
                    Value::Bool(value) => write!(f, "{value}"),
                    Value::String(value) => f.write_str(&shown(value)),
                    Value::Array(array) => match array {
                        $(Array::$variant(items) => list(f, items, |item| item.to_string()),)*
                        Array::Bool(items) => list(f, items, |item| item.to_string()),
                        Array::String(items) => list(f, items, |item| shown(item)),
                    },
                }
            };
        }
        with_numbers!(show)
    }
}

fn list<T>(f: &mut fmt::Formatter<'_>, items: &[T], show: impl Fn(&T) -> String) -> fmt::Result {
    const MOST: usize = 8;
    let head: Vec<String> = items.iter().take(MOST).map(show).collect();
    let more = if items.len() > MOST { format!(", … {} items", items.len()) } else { String::new() };
    write!(f, "[{}{more}]", head.join(", "))
}
