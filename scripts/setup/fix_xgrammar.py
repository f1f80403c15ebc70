"""Changes the source of xgrammar before it is compiled. usage: fix_xgrammar.py FOLDER (of the unpacked source)

Its bounds remove values that keep to them: a text with a minLength or maxLength may hold no quote, backslash or line end (and may hold control
characters, which JSON forbids), a number with a minimum or maximum no exponent and six decimals at most, a pattern none of what JSON escapes. What
they look like is asked of the program instead (src/engine/constraint.cpp), which writes patterns with JSON's escapes itself.

What no experiment can ask for is left out, a third of what there was to compile: Lark grammars, structural tags, and schemas written as the XML of tool calls.
"""
import pathlib
import re
import sys

SCHEMAS = pathlib.Path(sys.argv[1]) / "cpp/json_schema_converter.cc"
text = SCHEMAS.read_text(encoding="utf-8")
for wrong, right in (
        ('#include "json_schema_converter.h"\n',
         """#include "json_schema_converter.h"

namespace xgrammar {
std::string BoundedTextGrammar(int least, int most);
std::string NumberRangeGrammar(std::optional<double> least, std::optional<double> most, bool excludes_least, bool excludes_most);
}  // namespace xgrammar
"""),
        (r"""      int32_t character =
          builder_.AddCharacterClass({{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true);
      int32_t body = Repeat(rule_name + "_characters", character, spec.min_length, spec.max_length);
      return Sequence({ByteString("\""), body, ByteString("\"")});
""",
         r"""      return Sequence(
          {ByteString("\""),
           AddSubGrammar(Grammar::FromEBNF(BoundedTextGrammar(spec.min_length, spec.max_length)))}
      );
"""),
        ("""    return RegexExpression(
        GenerateFloatRangeRegex(start, end, /*precision=*/6, exclusive_start, exclusive_end),
        false,
        /*force_cfg_expansion=*/true
    );
""",
         """    return AddSubGrammar(
        Grammar::FromEBNF(NumberRangeGrammar(start, end, exclusive_start, exclusive_end))
    );
"""),
        ("RegexExpression(*spec.pattern, /*json_string=*/true)", "RegexExpression(*spec.pattern)")):
    assert text.count(wrong) == 1
    text = text.replace(wrong, right)
for pattern, times in ((r"// =+ XMLToolCallingConverter Implementation =+\n.*?(?=// =+ Range Regex Generation =+\n)", 1),
                       (r"    case JSONFormat::kQwenXML:\n.*?(?=    default:\n)", 2)):
    text, found = re.subn(pattern, "", text, flags=re.DOTALL)
    assert found == times
SCHEMAS.write_text(text, encoding="utf-8")

(SCHEMAS.parent / "left_out.cc").write_text("""#include <stdexcept>

#include "lark_converter.h"
#include "structural_tag.h"

namespace xgrammar {
Grammar LarkToGrammar(const std::string&, const std::optional<TokenizerInfo>&, const std::vector<NamedGrammar>&) {
  throw std::runtime_error("Lark grammars are not compiled in");
}
Result<Grammar, StructuralTagError> StructuralTagToGrammar(const std::string&, const std::optional<TokenizerInfo>&) {
  throw std::runtime_error("structural tags are not compiled in");
}
}  // namespace xgrammar
""", encoding="utf-8")
