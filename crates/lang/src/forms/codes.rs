//! Codes of what is wrong with forms.

use crate::codes::Code;

/// Findings of the expansion.
pub const FORMS: &[Code] = &[Code {
    code: "E0031",
    title: "an option of the script is wrong",
    explanation: "`getopt(\"name\", default, \"help\")` reads `--name=value` from behind the script on the command \
                      line. The default is a number, a string, `true` or `false`, the same wherever the option is \
                      asked for, and the value must be of its type. Without a default the option is a switch.",
    example: "BEGIN { print(getopt(\"top\", pid)); }",
    repaired: "BEGIN { print(getopt(\"top\", 10)); }",
}];
