// Chat templates: the Jinja engine's lexer, parser and every filter, with three conversations.
#include "magister/text/chat_template.h"

#include <nlohmann/json.hpp>

#include "fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  using nlohmann::ordered_json;
  static const ordered_json conversations[] = {
      ordered_json::parse(R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi é\n"}],
        "add_generation_prompt":true,"bos_token":"<s>","eos_token":"</s>"})"),
      ordered_json::parse(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},
        {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"x":[1,2.5,null,true]}}}]},
        {"role":"tool","content":"7"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],
        "bos_token":"","eos_token":"<|im_end|>","n":-9223372036854775807,"x":1e300,"d":{"b":1,"a":[]}})"),
      ordered_json::parse(R"({"messages":[]})")};
  std::optional<ChatTemplate> parsed;
  const auto text = fuzz::text_of(data, size);
  if (!fuzz::read_or_refuse({ExitCode::kData}, [&] { parsed = ChatTemplate::parse(text, "t.jinja"); })) return 0;
  RenderOptions options;
  options.now = 1'700'000'000;
  options.max_bytes = 1 << 20;
  options.max_steps = 100'000;
  for (const ordered_json& variables : conversations) {
    for (const bool strict : {false, true}) {
      options.strict = strict;
      fuzz::read_or_refuse({ExitCode::kData}, [&] {
        const RenderedChat chat = parsed->render(variables, options);
        fuzz::require(chat.text.size() <= options.max_bytes, "more text than was allowed");
        for (const TextSpan& span : chat.generated)
          fuzz::require(span.begin <= span.end && span.end <= chat.text.size(), "a span outside the text");
      });
    }
  }
  return 0;
}
