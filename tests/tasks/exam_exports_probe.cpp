// Reads an exam as JSON ({title, items}) from standard input and writes every format into a folder:
//   exam_exports_probe FOLDER [FORMAT ...]. Prints a line {format: [files]} or {format: the refusal} for each.
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/io/whole_file.h"
#include "tasks/exam/exports.h"
#include "tasks/exam/item_json.h"
#include "tasks/exam/shuffle.h"

int main(int argc, char** argv) {
  using namespace magister;
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const auto json = nlohmann::ordered_json::parse(text);
  Exam exam{json["title"], "en", {}};
  for (const auto& item : json["items"]) exam.items.push_back(item_of_json(item));
  for (const ExamExport& format : exam_exports()) {
    bool wanted = argc == 2;
    for (int i = 2; i < argc; ++i) wanted = wanted || std::string(format.name) == argv[i];
    if (!wanted) continue;
    nlohmann::ordered_json line;
    try {
      line[format.name] = nlohmann::ordered_json::array();
      for (const ExamFile& file : export_exam(format, exam)) {
        write_whole_file(std::string(argv[1]) + "/exam" + file.suffix, file.bytes);
        line[format.name].push_back("exam" + file.suffix);
      }
    } catch (const Error& error) {
      line[format.name] = error.what();
    }
    std::cout << line.dump() << "\n";
  }
}
