//! JSON as values of Lua.

use mlua::{Lua, Table, Value};

use super::options::{Invalid, Options};
use crate::{control::Control, fault};

/// Reads one text.
pub(super) struct Decoder<'a> {
    lua: &'a Lua,
    options: Options,
    control: &'a Control,
    text: &'a [u8],
    at: usize,
}

/// A token, and what errors call it.
enum Token {
    Open(u8),
    Close(u8),
    Colon,
    Comma,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::Open(b'{') => "T_OBJ_BEGIN",
            Token::Open(_) => "T_ARR_BEGIN",
            Token::Close(b'}') => "T_OBJ_END",
            Token::Close(_) => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::End => "T_END",
            Token::Wrong(why) => why,
        }
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new(lua: &'a Lua, options: Options, control: &'a Control, text: &'a [u8]) -> Decoder<'a> {
        Decoder { lua, options, control, text, at: 0 }
    }

    /// The value of the whole text.
    pub(super) fn whole(mut self) -> mlua::Result<Value> {
        // In UTF-8, JSON has no zero among its first two bytes.
        if self.text.len() >= 2 && self.text[..2].contains(&0) {
            return Err(fault::at_call(self.lua, "JSON parser does not support UTF-16 or UTF-32"));
        }
        let (token, at) = self.token();
        let value = self.value(token, at, 0)?;
        match self.token() {
            (Token::End, _) => Ok(value),
            (token, at) => Err(self.unexpected("the end", &token, at)),
        }
    }

    fn unexpected(&self, wanted: &str, token: &Token, at: usize) -> mlua::Error {
        let text = format!("Expected {wanted} but found {} at character {}", token.name(), at + 1);
        fault::at_call(self.lua, &text)
    }

    fn value(&mut self, token: Token, at: usize, depth: usize) -> mlua::Result<Value> {
        self.control.work(1).map_err(fault::stopped)?;
        Ok(match token {
            Token::Text(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::Open(kind) => {
                if depth >= self.options.decode_depth {
                    let text = format!(
                        "Found too many nested data structures ({}) at character {}",
                        depth + 1,
                        self.at
                    );
                    return Err(fault::at_call(self.lua, &text));
                }
                let table = self.lua.create_table()?;
                if kind == b'{' {
                    self.object(&table, depth + 1)?
                } else {
                    self.array(&table, depth + 1)?
                }
                Value::Table(table)
            }
            token => return Err(self.unexpected("value", &token, at)),
        })
    }

    fn object(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        let (mut token, mut at) = self.token();
        if matches!(token, Token::Close(b'}')) {
            return Ok(());
        }
        loop {
            let Token::Text(key) = token else {
                return Err(self.unexpected("object key string", &token, at));
            };
            match self.token() {
                (Token::Colon, _) => {}
                (token, at) => return Err(self.unexpected("colon", &token, at)),
            }
            let (next, place) = self.token();
            let value = self.value(next, place, depth)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            match self.token() {
                (Token::Close(b'}'), _) => return Ok(()),
                (Token::Comma, _) => (token, at) = self.token(),
                (token, at) => return Err(self.unexpected("comma or object end", &token, at)),
            }
        }
    }

    fn array(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        let (mut token, mut at) = self.token();
        if matches!(token, Token::Close(b']')) {
            return Ok(());
        }
        for nth in 1.. {
            let value = self.value(token, at, depth)?;
            table.raw_set(nth, value)?;
            match self.token() {
                (Token::Close(b']'), _) => break,
                (Token::Comma, _) => (token, at) = self.token(),
                (token, at) => return Err(self.unexpected("comma or array end", &token, at)),
            }
        }
        Ok(())
    }

    /// The next token, and where it or its error is.
    fn token(&mut self) -> (Token, usize) {
        while matches!(self.peek(0), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        let at = self.at;
        let Some(first) = self.peek(0) else { return (Token::End, at) };
        let single = match first {
            b'{' | b'[' => Token::Open(first),
            b'}' | b']' => Token::Close(first),
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            _ => return (self.word(first), at),
        };
        self.at += 1;
        (single, at)
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn word(&mut self, first: u8) -> Token {
        for (word, token) in
            [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)]
        {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        let keeps = self.options.decode_invalid != Invalid::Refuse;
        match first {
            b'-' | b'0'..=b'9' => self.number(keeps),
            b'+' | b'i' | b'I' | b'n' | b'N' if keeps => self.number(keeps),
            _ => Token::Wrong("invalid token"),
        }
    }

    /// A number, as `strtod` reads it.
    fn number(&mut self, keeps_invalid: bool) -> Token {
        let rest = &self.text[self.at..];
        let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
        let is_negative = rest.first() == Some(&b'-');
        let body = &rest[sign..];
        let (magnitude, used, is_plain) = match special(body) {
            Some((magnitude, used)) => (magnitude, used, false),
            None => {
                let (magnitude, used) = decimal(body);
                let has_zero = body.first() == Some(&b'0') && body.get(1).is_some_and(u8::is_ascii_digit);
                (magnitude, used, !has_zero && sign == usize::from(is_negative))
            }
        };
        if used == 0 {
            let is_number = matches!(rest.first(), Some(b'-' | b'+' | b'0'..=b'9'));
            return Token::Wrong(if is_number { "invalid number" } else { "invalid token" });
        }
        if !is_plain && !keeps_invalid {
            return Token::Wrong("invalid number");
        }
        self.at += sign + used;
        Token::Number(if is_negative { -magnitude } else { magnitude })
    }

    fn string(&mut self) -> (Token, usize) {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let at = self.at;
            match self.peek(0) {
                None => return (Token::Wrong("unexpected end of string"), at),
                Some(b'"') => {
                    self.at += 1;
                    return (Token::Text(text), at);
                }
                Some(b'\\') => match self.escape(&mut text) {
                    Ok(()) => {}
                    Err((why, at)) => return (Token::Wrong(why), at),
                },
                Some(byte) => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// A backslash and what belongs to it.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), (&'static str, usize)> {
        let byte = match self.peek(1) {
            Some(b'u') => {
                let (character, used) = self.unicode().ok_or(("invalid unicode escape code", self.at))?;
                let mut bytes = [0; 4];
                text.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                self.at += used;
                return Ok(());
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => 10,
            Some(b'r') => 13,
            Some(b't') => 9,
            _ => return Err(("invalid escape code", self.at)),
        };
        text.push(byte);
        self.at += 2;
        Ok(())
    }

    /// The character of `\uXXXX`, or of a pair of them, and how many bytes they are.
    fn unicode(&self) -> Option<(char, usize)> {
        let unit = |from: usize| {
            let digits = self.text.get(self.at + from + 2..self.at + from + 6)?;
            let is_escape = self.text.get(self.at + from..self.at + from + 2) == Some(b"\\u");
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            let digits = std::str::from_utf8(digits).ok().filter(|_| is_escape && is_hex)?;
            u16::from_str_radix(digits, 16).ok()
        };
        let high = unit(0)?;
        if let Some(character) = char::from_u32(u32::from(high)) {
            return Some((character, 6));
        }
        let units = [high, unit(6)?];
        char::decode_utf16(units).next()?.ok().map(|character| (character, 12))
    }
}

/// `inf`, `infinity`, `nan` or a number in hexadecimal digits, and its length.
fn special(text: &[u8]) -> Option<(f64, usize)> {
    let begins =
        |word: &str| text.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()));
    match () {
        () if begins("infinity") => Some((f64::INFINITY, 8)),
        () if begins("inf") => Some((f64::INFINITY, 3)),
        () if begins("nan") => Some((f64::NAN, 3)),
        () if begins("0x") => {
            let digits = text[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let digit = |byte: &u8| f64::from(char::from(*byte).to_digit(16).unwrap_or(0));
            let value = text[2..2 + digits].iter().fold(0.0, |sum, byte| sum * 16.0 + digit(byte));
            (digits > 0).then_some((value, 2 + digits))
        }
        () => None,
    }
}

/// A decimal number and its length; 0 if there is none.
fn decimal(text: &[u8]) -> (f64, usize) {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    if end == 0 {
        return (0.0, 0);
    }
    if text.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        match digits((end + 1 + sign).min(text.len())) {
            0 => {}
            count => end += 1 + sign + count,
        }
    }
    let number = std::str::from_utf8(&text[..end]).ok().and_then(|text| text.parse().ok());
    (number.unwrap_or(0.0), end)
}
