//! cjson, cmsgpack, struct and bit: the results of Redis 7.

use crate::common::Bench;

#[test]
fn cjson_encodes() {
    Bench::new().check(&[
        (
            "return cjson.encode({1,2,{a='x/y\"\\\\\\1'},1.5,true,cjson.null,1e20,0.1,-0})",
            "$55 [1,2,{\"a\":\"x\\/y\\\"\\\\\\u0001\"},1.5,true,null,1e+20,0.1,-0]",
        ),
        ("return cjson.encode({})", "$2 {}"),
        ("return cjson.encode({[1]=1,[9]=2})", "$40 [1,null,null,null,null,null,null,null,2]"),
        ("return cjson.encode({[1.5]=2})", "$9 {\"1.5\":2}"),
        ("return cjson.encode({a=function() end})", "-ERR user_script:1: Cannot serialise function: type not supported"),
        ("return cjson.encode({[true]=1})", "-ERR user_script:1: Cannot serialise boolean: table key must be a number or string"),
        ("return cjson.encode(0/0)", "-ERR user_script:1: Cannot serialise number: must not be NaN or Inf"),
        ("local t={} t.t=t return cjson.encode(t)", "-ERR user_script:1: Cannot serialise, excessive nesting (1001)"),
        ("return cjson.encode()", "-ERR user_script:1: bad argument #1 to 'encode' (expected 1 argument)"),
        ("cjson.encode_sparse_array(true) return cjson.encode({[20]=2})", "$8 {\"20\":2}"),
        ("cjson.encode_number_precision(3) return cjson.encode(math.pi)", "$4 3.14"),
        ("cjson.encode_invalid_numbers(true) return cjson.encode({0/0,1/0})", "$9 [nan,inf]"),
        ("return {cjson.encode_invalid_numbers('null'), cjson.encode(0/0)}", "*2 $4 null $4 null"),
        ("return cjson.encode_number_precision(99)", "-ERR user_script:1: bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)"),
        ("return cjson.encode_sparse_array('x')", "-ERR user_script:1: bad argument #1 to 'encode_sparse_array' (invalid option 'x')"),
        ("local j = cjson.new() j.encode_number_precision(2) return {j.encode(1.234), cjson.encode(1.234)}", "*2 $3 1.2 $5 1.234"),
    ]);
}

#[test]
fn cjson_decodes() {
    Bench::new().check(&[
        ("return cjson.decode('[1,\"a\",[2.5],{}]')", "*4 :1 $1 a *1 :2 *0"),
        ("return cjson.decode('{\"a\":{\"b\":\"c\"}}').a.b", "$1 c"),
        ("return tostring(cjson.decode('{\"a\":null}').a == cjson.null)", "$4 true"),
        ("return cjson.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\\\\n\"')", "$7 é😀"),
        ("return cjson.encode(cjson.decode('\"\\200\"')) == '\"\\200\"'", ":1"),
        ("return cjson.decode('01')", ":1"),
        ("return cjson.decode('0x10')", ":16"),
        ("return tostring(cjson.decode('Infinity'))", "$3 inf"),
        (
            "cjson.decode_invalid_numbers(false) return cjson.decode('0x10')",
            "-ERR user_script:1: Expected value but found invalid number at character 1",
        ),
    ]);
}

#[test]
fn cjson_refuses_as_redis_does() {
    let cases = [
        ("", "Expected value but found T_END at character 1"),
        ("{", "Expected object key string but found T_END at character 2"),
        ("[1,", "Expected value but found T_END at character 4"),
        ("[1 2]", "Expected comma or array end but found T_NUMBER at character 4"),
        ("{\"a\" 1}", "Expected colon but found T_NUMBER at character 6"),
        ("{a:1}", "Expected object key string but found invalid token at character 2"),
        ("{\"a\":1,}", "Expected object key string but found T_OBJ_END at character 8"),
        ("[1,]", "Expected value but found T_ARR_END at character 4"),
        ("\"abc", "Expected value but found unexpected end of string at character 5"),
        ("\"a\\q\"", "Expected value but found invalid escape code at character 3"),
        ("\"\\u12\"", "Expected value but found invalid unicode escape code at character 2"),
        ("1 2", "Expected the end but found T_NUMBER at character 3"),
        ("tru", "Expected value but found invalid token at character 1"),
        ("-", "Expected value but found invalid number at character 1"),
        ("1e", "Expected the end but found invalid token at character 2"),
        ("[1]x", "Expected the end but found invalid token at character 4"),
        ("\"\\ud800\"", "Expected value but found invalid unicode escape code at character 2"),
        (".5", "Expected value but found invalid token at character 1"),
        ("NULL", "Expected value but found invalid token at character 1"),
    ];
    let mut bench = Bench::new();
    for (text, error) in cases {
        let script = "local _, e = pcall(cjson.decode, ARGV[1]) return e";
        let reply = bench.run_with(script, &[text], false).unwrap();
        assert_eq!(reply, format!("${} {error}", error.len()), "{text}");
    }
    bench.check(&[(
        "return cjson.decode(('['):rep(1001))",
        "-ERR user_script:1: Found too many nested data structures (1001) at character 1001",
    )]);
}

#[test]
fn cmsgpack_packs_each_kind_of_value() {
    let hex =
        "local function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end ";
    let mut bench = Bench::new();
    for (value, packed) in [
        ("1", "01"),
        ("-1", "ff"),
        ("200", "ccc8"),
        ("-200", "d1ff38"),
        ("70000", "ce00011170"),
        ("2^40", "cf0000010000000000"),
        ("-2^40", "d3ffffff0000000000"),
        ("0.5", "ca3f000000"),
        ("0.1", "cb3fb999999999999a"),
        ("'abc'", "a3616263"),
        ("('x'):rep(40)", &format!("d928{}", "78".repeat(40))),
        ("true", "c3"),
        ("nil", "c0"),
        ("{}", "90"),
        ("{1,2}", "920102"),
        ("{a=1}", "81a16101"),
        ("1,2", "0102"),
    ] {
        assert_eq!(
            bench.run(&format!("{hex} return hex(cmsgpack.pack({value}))")),
            format!("${} {packed}", packed.len()),
            "{value}"
        );
    }
}

#[test]
fn cmsgpack_unpacks_what_it_packs() {
    Bench::new().check(&[
        (
            "return {cmsgpack.unpack(cmsgpack.pack(1, 'a', {x={1,2}}, -5, 70000, 0.5, true))}",
            "*7 :1 $1 a *0 :-5 :70000 :0 :1",
        ),
        ("return cmsgpack.unpack(cmsgpack.pack({x={1,2}})).x", "*2 :1 :2"),
        ("return {cmsgpack.unpack_one(cmsgpack.pack(1,2,3))}", "*2 :1 :1"),
        ("return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3),2,1)}", "*3 :-1 :2 :3"),
        (
            "return cmsgpack.pack()",
            "-ERR user_script:1: bad argument #0 to 'pack' (MessagePack pack needs input.)",
        ),
        ("return cmsgpack.unpack('\\193')", "-ERR user_script:1: Bad data format in input."),
        ("return cmsgpack.unpack('\\145')", "-ERR user_script:1: Missing bytes in input."),
        (
            "return cmsgpack.unpack('\\219\\255\\255\\255\\255')",
            "-ERR user_script:1: Missing bytes in input.",
        ),
        ("return cmsgpack.unpack(('\\145'):rep(1000))", "-ERR user_script:1: Bad data format in input."),
    ]);
}

#[test]
fn struct_packs_and_unpacks() {
    Bench::new().check(&[
        ("return {struct.unpack('>I2hBs', struct.pack('>I2hBs', 513, -2, 7, 'ab'))}", "*5 :513 :-2 :7 $2 ab :9"),
        ("return struct.pack('>I4', 16909060) == '\\1\\2\\3\\4'", ":1"),
        ("return struct.pack('<i3', -2) == '\\254\\255\\255'", ":1"),
        ("return {struct.unpack('<i3', '\\254\\255\\255')}", "*2 :-2 :4"),
        ("return {struct.unpack('Bc0', '\\3abcd')}", "*2 $3 abc :5"),
        ("return struct.pack('Bxc0', 3, 'abc') == '\\3\\0abc'", ":1"),
        ("return {tostring((struct.unpack('<d', struct.pack('<d', 0.1)))), struct.unpack('>f', struct.pack('>f', 2.5))}", "*3 $3 0.1 :2 :5"),
        ("return struct.size('!i2i8')", ":16"),
        ("return {struct.unpack('b', 'abc', 3)}", "*2 :99 :4"),
        ("return struct.pack('z')", "-ERR user_script:1: bad argument #1 to 'pack' (invalid format option 'z')"),
        ("return struct.pack('>I2','x')", "-ERR user_script:1: bad argument #2 to 'pack' (number expected, got string)"),
        ("return struct.unpack('>I2','x')", "-ERR user_script:1: bad argument #2 to 'unpack' (data string too short)"),
        ("return struct.unpack('s','x')", "-ERR user_script:1: unfinished string in data"),
        ("return struct.size('s')", "-ERR user_script:1: bad argument #1 to 'size' (option 's' has no fixed size)"),
        ("return struct.pack('c5','abc')", "-ERR user_script:1: bad argument #3 to 'pack' (string too short)"),
    ]);
}

#[test]
fn bit_works_on_32_bits() {
    Bench::new().check(&[
        ("return bit.band(0xff0f, 0x0fff)", ":3855"),
        ("return bit.bor(1, 2, 4)", ":7"),
        ("return bit.bxor(0xffffffff, 1)", ":-2"),
        ("return bit.bnot(0)", ":-1"),
        ("return bit.tobit(0xffffffff)", ":-1"),
        ("return bit.tobit(2^40 + 5)", ":5"),
        ("return bit.lshift(1, 31)", ":-2147483648"),
        ("return bit.lshift(1, 33)", ":2"),
        ("return bit.rshift(-1, 28)", ":15"),
        ("return bit.arshift(-256, 4)", ":-16"),
        ("return bit.rol(0x12345678, 8)", ":878082066"),
        ("return bit.ror(0x12345678, 8)", ":2014458966"),
        ("return bit.bswap(0x12345678)", ":2018915346"),
        ("return {bit.tohex(255), bit.tohex(255, 2), bit.tohex(255, -4)}", "*3 $8 000000ff $2 ff $4 00FF"),
        (
            "return bit.band()",
            "-ERR user_script:1: bad argument #1 to 'band' (number expected, got no value)",
        ),
        (
            "return bit.band('x')",
            "-ERR user_script:1: bad argument #1 to 'band' (number expected, got string)",
        ),
    ]);
}
