// Times what an exam does without its model, for N objectives of M items each, over a source of P passages:
//   exam_scale_probe N M P. Prints a Markdown row for each part: what, how many, seconds, peak memory of the process.
// An item in a hundred repeats an earlier one, and one text is repeated by one item in ten.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"
#include "tasks/exam/duplicates.h"
#include "tasks/exam/exports.h"
#include "tasks/exam/objectives.h"
#include "tasks/exam/shuffle.h"
#include "tasks/exam/source.h"

namespace {

using namespace magister;

// Pseudowords of 20,000, drawn by the numbers of the text and of the word.
std::string words(std::uint64_t text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t draw = splitmix64(text * 1000003 + i) % 20000;
    if (i > 0) all += ' ';
    for (int letter = 0; letter < 4; ++letter, draw /= 12) all += "ptkmnsrlbdgv"[draw % 12], all += "aeiou"[draw % 5];
  }
  return all;
}

template <typename Part>
void time_part(const char* what, std::uint64_t count, const Part& part) {
  const auto begin = std::chrono::steady_clock::now();
  part();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("| %s | %llu | %.2f | %ld |\n", what, static_cast<unsigned long long>(count), seconds,
              usage.ru_maxrss / 1024);
  std::fflush(stdout);
}

ExamItem item_of(std::uint64_t number, const ExamObjective& objective) {
  const std::uint64_t text = number % 10 == 9 ? 9 : number % 100 == 50 ? number - 50 : number;
  ExamItem item;
  item.id = objective.number + "-" + std::to_string(number);
  item.objective_number = objective.number;
  item.objective_text = objective.text;
  item.stem = words(text, 18) + "?";
  for (std::uint64_t choice = 0; choice < 4; ++choice)
    item.choices.push_back({words(text * 4 + choice + (1u << 30), 4), ""});
  item.explanation = words(text + (1u << 29), 15);
  item.cited = {"chapter.md", number % 7, words(number % 5000, 180)};
  shuffle_choices(item, 7);
  return item;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const std::uint64_t objectives = std::strtoull(argv[1], nullptr, 10), items = std::strtoull(argv[2], nullptr, 10),
                      passages = std::strtoull(argv[3], nullptr, 10), total = objectives * items;
  std::string lines;
  for (std::uint64_t i = 0; i < objectives; ++i)
    lines += std::to_string(i / 100 + 1) + ".1." + std::to_string(i % 100 + 1) + " " + words(i + (1u << 28), 9) + "\n";
  ObjectiveList list;
  time_part("read the objectives", objectives, [&] { list = read_objectives(lines, "objectives.txt"); });
  MAGISTER_CHECK(list.objectives.size() == objectives, ExitCode::kInternal, "{} objectives", list.objectives.size());
  std::vector<SourceChunk> chunks;
  for (std::uint64_t i = 0; i < passages; ++i) chunks.push_back({"chapter.md", i, words(i, 180)});
  std::size_t hits = 0;
  time_part("index the passages", passages, [&] { hits += ChunkIndex(chunks).best("one", 1).size(); });
  const ChunkIndex index(chunks);
  time_part("choose passages for the objectives", objectives, [&] {
    for (const ExamObjective& one : list.objectives) hits += index.best(one.text, 2).size();
  });
  Exam exam{"Scale", "en", {}};
  time_part("make the items (not part of a run)", total, [&] {
    for (std::uint64_t i = 0; i < total; ++i) exam.items.push_back(item_of(i, list.objectives[i / items]));
  });
  std::vector<MinHashSignature> signatures;
  time_part("signatures of the items", total, [&] {
    for (const ExamItem& item : exam.items) signatures.push_back(minhash(duplicate_text(item)));
  });
  std::size_t pairs = 0;
  time_part("duplicates among the items", total, [&] { pairs = find_duplicates(signatures).size(); });
  signatures = {};
  time_part("places of the keys", total, [&] { hits += key_positions(exam.items).counts.size(); });
  for (const ExamExport& format : exam_exports()) {
    try {
      time_part(format.name, total, [&] {
        for (const ExamFile& file : export_exam(format, exam)) hits += file.bytes.size();
      });
    } catch (const Error& error) {
      std::printf("| %s | %llu | refused: %s | |\n", format.name, static_cast<unsigned long long>(total), error.what());
    }
  }
  std::printf("\n%zu pairs of duplicates\n", pairs);
  return hits == 0;
}
