//! JSON as Go reads and writes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topics::go_json::{Error, from_slice, to_vec};

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Shape {
    big: u64,
    small: i8,
    text: String,
    flag: bool,
    list: Option<Vec<u8>>,
    words: Option<Vec<String>>,
    flags: Vec<bool>,
    shapes: Vec<Shape>,
    map: BTreeMap<String, Shape>,
    maps: BTreeMap<String, BTreeMap<String, u8>>,
    lists: Vec<Vec<u8>>,
}

fn read(text: &str) -> Result<Shape, Error> {
    from_slice(text.as_bytes())
}

#[test]
fn names_are_matched_without_case() {
    for name in ["Small", "small", "SMALL", "sMaLl", "\u{17f}mall", r"\u0053mall"] {
        assert_eq!(read(&format!(r#"{{"{name}":2}}"#)).unwrap().small, 2, "{name}");
    }
    assert_eq!(read(r#"{"Sm all":2,"Smal":2,"":2}"#).unwrap(), Shape::default());
}

#[test]
fn the_last_duplicate_counts_and_null_does_not() {
    assert_eq!(read(r#"{"BIG":1,"big":2,"other":[{}]}"#).unwrap(), Shape { big: 2, ..Shape::default() });
    assert_eq!(read(r#"{"Big":3,"Big":null}"#).unwrap().big, 3);
    assert_eq!(read(r#"{"Map":{"a":{"Big":1},"a":{"Big":2},"A":{}}}"#).unwrap().map["a"].big, 2);
}

#[test]
fn only_the_duplicate_that_counts_is_judged() {
    assert_eq!(read(r#"{"Big":"text","Big":4}"#).unwrap().big, 4);
}

#[test]
fn null_is_the_zero_value_everywhere() {
    let zero = Shape::default();
    assert_eq!(read("null").unwrap(), zero);
    assert_eq!(read(r#"{"Big":null,"Text":null,"List":null,"Shapes":null,"Map":null}"#).unwrap(), zero);
    let inside = read(
        r#"{"List":[1,null],"Words":[null,"a"],"Flags":[true,null],"Shapes":[null],
           "Map":{"a":null},"Maps":{"b":null,"c":{"d":null}},"Lists":[null,[null]]}"#,
    )
    .unwrap();
    assert_eq!(inside.list, Some(vec![1, 0]));
    assert_eq!(inside.words, Some(vec![String::new(), "a".to_owned()]));
    assert_eq!(inside.flags, [true, false]);
    assert_eq!(inside.shapes, [Shape::default()]);
    assert_eq!(inside.map["a"], zero);
    assert_eq!((inside.maps["b"].len(), inside.maps["c"]["d"]), (0, 0));
    assert_eq!(inside.lists, [vec![], vec![0]]);
}

#[test]
fn d_p3_large_numbers_keep_all_their_digits() {
    for number in [u64::MAX, (1 << 53) + 1] {
        let read = read(&format!(r#"{{"Big":{number}}}"#)).unwrap();
        assert_eq!(read.big, number);
        assert!(String::from_utf8(to_vec(&read).unwrap()).unwrap().contains(&number.to_string()));
    }
}

#[test]
fn fractions_are_read_to_the_last_bit() {
    // Digits for which a fast and inexact parser is off by one.
    let digits = format!("1004{}", "4".repeat(82));
    let value: f64 = from_slice(digits.as_bytes()).unwrap();
    assert_eq!(value.to_bits(), digits.parse::<f64>().unwrap().to_bits());
    assert_eq!(
        to_vec(&value).unwrap(),
        to_vec(&from_slice::<f64>(&to_vec(&value).unwrap()).unwrap()).unwrap()
    );
}

#[test]
fn a_fault_is_told_with_its_member_or_its_place() {
    for (text, words) in [
        (r#"{"Small":200}"#, ["Small: found 200", "a whole number from -128 to 127"]),
        (r#"{"small":-129}"#, ["Small", "-129"]),
        (r#"{"Big":18446744073709551616}"#, ["Big", "found 18446744073709552000.0"]),
        (r#"{"Big":-1}"#, ["Big", "-1"]),
        (r#"{"Map":{"a":{"List":[1,"x"]}}}"#, ["/Map/a/List/1", "a text of 1 character"]),
        (r#"{"Shapes":[{},{"Flag":1}]}"#, ["/Shapes/1/Flag", "found 1, expected true or false"]),
        (r#"{"Big":9.0}"#, ["Big", "found 9.0"]),
        (r#"{"Big":9e0}"#, ["Big", "found 9.0"]),
        (r#"{"Text":{}}"#, ["Text", "found an object, expected a text"]),
        (r#"{"Map":[]}"#, ["Map", "found a list, expected an object"]),
        (r#"{"Shapes":{}}"#, ["Shapes", "found an object, expected a list"]),
        (r#"{"Map":{"a":[]}}"#, ["/Map/a", "found a list"]),
        ("[]", ["the value", "found a list, expected an object, Shape"]),
        ("9", ["the value", "found 9"]),
        ("{\n\"Big\":1,}", ["line 2", "column"]),
        ("{}x", ["line 1", "no JSON text"]),
        ("", ["line 1", "cut off"]),
        (r#"{"Big":"#, ["line 1", "cut off"]),
    ] {
        let told = read(text).unwrap_err().to_string();
        assert!(words.iter().all(|word| told.contains(word)), "{text}: {told}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    for deep in ["[".repeat(100_000), "{\"Map\":".repeat(100_000), "{\"x\":[".repeat(100_000)] {
        assert!(matches!(read(&deep), Err(Error::Syntax(_))));
    }
    let level = "{\"Map\":{\"a\":";
    assert!(read(&format!("{}{{}}{}", level.repeat(60), "}}".repeat(60))).is_ok());
}

#[test]
fn bytes_that_are_no_text_are_replaced_as_go_replaces_them() {
    let read: Shape = from_slice(b"{\"Text\":\"a\xff\"}").unwrap();
    assert_eq!(read.text, "a\u{fffd}");
    assert!(from_slice::<Shape>(b"{\"Text\":\"a\"}\xff").is_err());
    assert!(from_slice::<Shape>(b"\xef\xbb\xbf{}").is_err(), "a byte order mark is no white space");
}

#[test]
fn markup_is_escaped_as_go_escapes_it() {
    let shape =
        Shape { text: "<a>&\u{2028}\u{2029}\u{1}\u{8}\u{c}\t\r\n\"\\/\u{7f}é".into(), ..Shape::default() };
    let written = String::from_utf8(to_vec(&shape).unwrap()).unwrap();
    let text = r#""\u003ca\u003e\u0026\u2028\u2029\u0001\b\f\t\r\n\"\\/"#;
    assert!(written.contains(&format!("{text}\u{7f}é\"")), "{written}");
    assert_eq!(read(&written).unwrap(), shape);
}

#[test]
fn map_keys_are_written_in_byte_order() {
    let map: BTreeMap<&str, u8> = [("b", 1), ("B", 2), ("a.c", 3), ("a", 4)].into();
    assert_eq!(to_vec(&map).unwrap(), br#"{"B":2,"a":4,"a.c":3,"b":1}"#);
}
