// Chat templates for the Python oracle test. Standard input: JSON lines {"template", "variables", and as needed "now",
// "max_bytes", "max_steps"}, or {"config"} for the template inside a tokenizer_config.json. Standard output, one line
// each: {"text", "generated": [[begin, end], ...], "unplaced"}, {"refusal": the template's own message}, or {"error":
// message, "when": parse|run}.
#include <iostream>
#include <nlohmann/json.hpp>

#include "magister/text/chat_template.h"

using nlohmann::ordered_json;

namespace {

ordered_json answer(const ordered_json& request) {
  const char* when = "parse";
  try {
    if (request.contains("config")) {
      const auto found = magister::chat_template_from_config(request["config"].get<std::string>(), "config");
      return found ? ordered_json{{"text", *found}} : ordered_json{{"text", nullptr}};
    }
    const auto text = request["template"].get<std::string>();
    const auto chat = magister::ChatTemplate::parse(text, request.value("source", "t"));
    when = "run";
    magister::RenderOptions options;
    if (request.contains("now")) options.now = request["now"].get<std::int64_t>();
    options.max_bytes = request.value("max_bytes", options.max_bytes);
    options.max_steps = request.value("max_steps", options.max_steps);
    const auto rendered = chat.render(request["variables"], options);
    ordered_json spans = ordered_json::array();
    for (const auto& span : rendered.generated) spans.push_back({span.begin, span.end});
    return {{"text", rendered.text}, {"generated", spans}, {"unplaced", rendered.unplaced}};
  } catch (const magister::TemplateRefusal& refusal) {
    return {{"refusal", refusal.message()}, {"error", refusal.what()}};
  } catch (const magister::Error& error) {
    return {{"error", error.what()}, {"when", when}, {"code", static_cast<int>(error.code())}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(ordered_json::parse(line)).dump() << "\n" << std::flush;
  return 0;
}
