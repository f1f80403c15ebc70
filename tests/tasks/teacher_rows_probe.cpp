// Reads a teacher's file as training does and prints it: teacher_rows_probe FILE VOCAB_SIZE TOKENIZER_SHA256
// A JSON object a sample: key, ids, valid, top_ids, top_logprobs (null: none). Errors as the program gives them.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/tasks/teacher_logits/teacher_file.h"

using namespace magister;

namespace {

void print(const char* name, const auto& values) {
  std::printf("\"%s\": [", name);
  const char* comma = "";
  for (const auto value : values) {
    const double number = static_cast<double>(value);
    std::isfinite(number) ? std::printf("%s%.9g", comma, number) : std::printf("%snull", comma);
    comma = ", ";
  }
  std::printf("]");
}

void run(const std::vector<std::string>& arguments) {
  TeacherFile file(arguments.at(0), {std::stoll(arguments.at(1)), arguments.at(2)});
  // From the last to the first: any order will do.
  for (std::uint64_t i = file.num_samples(); i-- > 0;) {
    const TeacherSample sample = file.sample(i);
    std::printf("{\"key\": \"%s\", \"width\": %lld, \"sampled\": %s, ", file.key(i).c_str(),
                static_cast<long long>(file.width()), file.sampled() ? "true" : "false");
    print("ids", sample.ids);
    std::printf(", ");
    print("valid", sample.valid);
    std::printf(", ");
    print("top_ids", sample.top_ids);
    std::printf(", ");
    print("top_logprobs", sample.top_logprobs);
    std::printf("}\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
