// Checks of an exam's items: planted defects are all found, clean items pass; duplicates; shuffled choices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "magister/text/folded.h"
#include "tasks/exam/duplicates.h"
#include "tasks/exam/exports.h"
#include "tasks/exam/shuffle.h"
#include "tasks/exam/structure_checks.h"

namespace magister {
namespace exam_checks_test {

ExamItem choice_item(const std::string& stem, const std::vector<std::string>& choices, std::size_t key = 0) {
  ExamItem item;
  item.stem = stem;
  for (const std::string& text : choices) item.choices.push_back({text, "why " + text});
  item.key = key;
  return item;
}

// The clean items of exam_items.txt, the keys at all four places.
std::vector<ExamItem> clean_items() {
  std::ifstream file(std::string(std::getenv("MAGISTER_SOURCE_DIR")) + "/tests/tasks/exam_items.txt");
  std::vector<ExamItem> items;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> cells;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t end = std::min(line.find(" | ", at), line.size());
      cells.push_back(line.substr(at, end - at));
      at = end + 3;
    }
    ExamItem item = choice_item(cells[0], {cells.begin() + 1, cells.end()});
    item.id = "item-" + std::to_string(items.size());
    shuffle_choices(item, 5);
    items.push_back(std::move(item));
  }
  return items;
}

std::set<std::string> failed(const ExamItem& item) {
  std::set<std::string> names;
  const std::vector<CheckResult> results = check_structure(item, item.kind == ItemKind::kChoice ? 4 : 0);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].passed) names.insert(name_of(static_cast<StructureCheck>(i)));
    EXPECT_EQ(results[i].passed, results[i].reason.empty());
  }
  return names;
}

struct Defect {
  const char* check;
  void (*plant)(ExamItem& item);
};

std::string& wrong(ExamItem& item) { return item.choices[(item.key + 1) % item.choices.size()].text; }
std::string& right(ExamItem& item) { return item.choices[item.key].text; }

const Defect kDefects[] = {
    {"distinct_choices", [](ExamItem& item) { wrong(item) = right(item); }},
    {"distinct_choices", [](ExamItem& item) { wrong(item) = " " + folded(right(item)) + "\u00a0\u200b"; }},
    {"complete", [](ExamItem& item) { wrong(item) = ""; }},
    {"complete", [](ExamItem& item) { right(item) = " \t\u00a0"; }},
    {"complete", [](ExamItem& item) { item.stem = "\n"; }},
    {"complete", [](ExamItem& item) { item.choices.pop_back(); }},
    {"key_in_set", [](ExamItem& item) { item.key = 4; }},
    {"key_in_set", [](ExamItem& item) { item.key = std::numeric_limits<std::size_t>::max(); }},
    {"all_or_none", [](ExamItem& item) { wrong(item) = "All of the above."; }},
    {"all_or_none", [](ExamItem& item) { right(item) = "none of these"; }},
    {"all_or_none", [](ExamItem& item) { wrong(item) = "Both A and C"; }},
    {"longest_is_key",
     [](ExamItem& item) { right(item) += ", as careful observation over many years has shown beyond any doubt"; }},
    {"cue_words",
     [](ExamItem& item) {
       item.stem += " Think of glimmerstones.";
       right(item) = "the glimmerstone";
     }},
    {"absolute_words",
     [](ExamItem& item) {
       for (std::size_t i = 0; i < item.choices.size(); ++i) {
         if (i != item.key) item.choices[i].text = "always " + item.choices[i].text;
       }
     }},
    {"grammar_cue",
     [](ExamItem& item) {
       item.stem = "The thing that is shown in the figure is an";
       right(item) = "alloy";
       wrong(item) = "resin";
     }},
    {"stem_negation", [](ExamItem& item) { item.stem = "Here is a list. Which of the following is not meant?"; }},
    {"answer_in_stem",
     [](ExamItem& item) {
       for (std::size_t i = 0; i < item.choices.size(); ++i) item.choices[i].text = "slate " + std::to_string(i);
       right(item) = "quartzite";
       item.stem += " (Hint: Quartzite)";
     }},
};

TEST(StructureChecks, FindEveryPlantedDefect) {
  const std::vector<ExamItem> clean = clean_items();
  std::size_t planted = 0;
  for (const Defect& defect : kDefects) {
    for (std::size_t i = 0; i < clean.size(); i += 6) {
      ExamItem item = clean[i];
      defect.plant(item);
      ++planted;
      EXPECT_TRUE(failed(item).contains(defect.check)) << defect.check << ": " << item.stem;
    }
  }
  EXPECT_GE(planted, 60u);
  RecordProperty("planted", static_cast<int>(planted));
}

TEST(StructureChecks, RejectAtMostATwentiethOfCleanItems) {
  const std::vector<ExamItem> clean = clean_items();
  ASSERT_GE(clean.size(), 60u);
  std::size_t rejected = 0;
  for (const ExamItem& item : clean) {
    const std::set<std::string> names = failed(item);
    rejected += !names.empty();
    for (const std::string& name : names) std::printf("rejected: %s: %s\n", name.c_str(), item.stem.c_str());
  }
  std::printf("%zu of %zu clean items rejected\n", rejected, clean.size());
  EXPECT_LE(rejected * 20, clean.size());
  EXPECT_LT(longest_is_key_share(clean), 0.5);
}

TEST(StructureChecks, OfOtherKinds) {
  ExamItem item;
  item.stem = "How many legs has a spider?";
  item.kind = ItemKind::kNumeric;
  item.value = 8;
  EXPECT_TRUE(failed(item).empty());
  item.tolerance = -1;
  EXPECT_EQ(failed(item), std::set<std::string>{"key_in_set"});
  item.kind = ItemKind::kShortAnswer;
  EXPECT_EQ(failed(item), std::set<std::string>{"complete"});
  item.accepted = {"eight", "EIGHT"};
  EXPECT_EQ(failed(item), std::set<std::string>{"distinct_choices"});
  item.accepted = {"legs"};
  EXPECT_EQ(failed(item), std::set<std::string>{"answer_in_stem"});
  item.kind = ItemKind::kTrueFalse;
  EXPECT_EQ(failed(item), (std::set<std::string>{"complete", "key_in_set"}));
  item.choices = {{"True", ""}, {"False", ""}};
  EXPECT_TRUE(failed(item).empty());
}

TEST(Duplicates, AreFoundAmongCleanItemsAndNoOthers) {
  std::vector<ExamItem> items = clean_items();
  const std::size_t clean = items.size();
  for (std::size_t i = 0; i < clean; i += 7) {
    items.push_back(items[i]);
    items.back().stem = "  " + folded(items[i].stem) + " ";
  }
  ExamItem longer = choice_item(
      "A student puts a slice of onion into strong salt water and looks at it again after ten minutes under the "
      "microscope; which change of the cells does she see?",
      {"The membrane leaves the wall", "b", "c", "d"});
  items.push_back(longer);
  longer.stem.replace(longer.stem.find("ten"), 3, "five");
  items.push_back(longer);
  std::vector<MinHashSignature> signatures;
  for (const ExamItem& item : items) signatures.push_back(minhash(duplicate_text(item)));
  std::vector<std::pair<std::size_t, std::size_t>> found, want;
  for (std::size_t i = 0; i < clean; i += 7) want.emplace_back(i, clean + i / 7);
  want.emplace_back(items.size() - 2, items.size() - 1);
  for (const DuplicatePair& pair : find_duplicates(signatures)) found.emplace_back(pair.first, pair.second);
  EXPECT_EQ(found, want);
}

// A text that very many items repeat gives a pair for each and not one for every two of them.
TEST(Duplicates, CopiesOfATextArePairsWithItsFirst) {
  const MinHashSignature same = minhash("the sun warms the surface of every sea and lake"),
                         near = minhash("the sun warms the surface of every sea and river"), other = minhash("a delta");
  std::vector<MinHashSignature> signatures = {near, other, same};
  signatures.resize(300000, same);
  const auto pairs = find_duplicates(signatures, 0.5);
  ASSERT_EQ(pairs.size(), 2 * (signatures.size() - 2) - 1);
  EXPECT_EQ(std::make_pair(pairs[0].first, pairs[0].second), std::make_pair(std::size_t{0}, std::size_t{2}));
  EXPECT_EQ(std::make_pair(pairs[2].first, pairs[2].second), std::make_pair(std::size_t{2}, std::size_t{3}));
}

// Whoever rejects the later item of each pair whose earlier one is still there rejects the same as with all pairs.
TEST(Duplicates, PairsRejectAsAllPairsWould) {
  std::vector<MinHashSignature> signatures;
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (int word = 0; word < 12; ++word) text += "w" + std::to_string(word + (i * 7 % 13 == word ? i % 5 : 0)) + " ";
    signatures.push_back(minhash(text + std::to_string(i % 3)));
  }
  std::vector<bool> want(signatures.size(), true), got = want;
  for (std::size_t second = 0; second < want.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first)
      if (want[first] && similarity(signatures[first], signatures[second]) >= 0.7) want[second] = false;
  }
  for (const DuplicatePair& pair : find_duplicates(signatures, 0.7))
    if (got[pair.first]) got[pair.second] = false;
  EXPECT_EQ(got, want);
  EXPECT_GT(std::count(want.begin(), want.end(), false), 100);
  EXPECT_GT(std::count(want.begin(), want.end(), true), 3);
}

TEST(Duplicates, SimilarityIsJaccardOfShingles) {
  // 20 words of which the last 5 differ: 13 of 23 shingles are in both.
  std::string a, b;
  for (int i = 0; i < 20; ++i) {
    a += "word" + std::to_string(i) + " ";
    b += "word" + std::to_string(i < 15 ? i : 100 + i) + " ";
  }
  EXPECT_NEAR(similarity(minhash(a), minhash(b)), 13.0 / 23, 3 * std::sqrt(0.57 * 0.43 / kMinHashes));
  EXPECT_EQ(similarity(minhash("One two"), minhash("one  TWO!")), 1.0);
  EXPECT_EQ(minhash("a fixed text")[0], minhash("A fixed text")[0]);
}

TEST(Shuffle, MovesKeyAndExplanationsWithTheirChoices) {
  std::map<std::string, int> orders;
  for (int i = 0; i < 2400; ++i) {
    ExamItem item = choice_item("s", {"a", "b", "c", "d"}, 2);
    item.id = "q" + std::to_string(i);
    shuffle_choices(item, 7);
    EXPECT_EQ(right(item), "c");
    std::string order;
    for (const ItemChoice& choice : item.choices) {
      EXPECT_EQ(choice.explanation, "why " + choice.text);
      order += choice.text;
    }
    ++orders[order];
    EXPECT_EQ(choice_order(7, item.id, 4), choice_order(7, item.id, 4));
  }
  ASSERT_EQ(orders.size(), 24u);
  double chi_square = 0;
  for (const auto& [order, count] : orders) chi_square += (count - 100) * (count - 100) / 100.0;
  EXPECT_GT(chi_square_survival(chi_square, 23), 0.001);
}

TEST(Shuffle, KeyPositionsHaveTheirChiSquare) {
  std::vector<ExamItem> items;
  const std::array counts{30, 20, 40, 30};
  for (std::size_t key = 0; key < counts.size(); ++key) {
    for (int i = 0; i < counts[key]; ++i) items.push_back(choice_item("s", {"a", "b", "c", "d"}, key));
  }
  const KeyPositions positions = key_positions(items);
  EXPECT_EQ(positions.counts, (std::vector<std::uint64_t>{30, 20, 40, 30}));
  EXPECT_NEAR(positions.chi_square, 20.0 / 3, 1e-12);
  EXPECT_EQ(positions.degrees, 3u);
  EXPECT_NEAR(positions.p_value, 0.08331630551120198, 1e-12);  // scipy.stats.chisquare([30, 20, 40, 30])
  EXPECT_EQ(key_positions({}).p_value, 1);
}

// scipy.stats.chi2.sf(x, degrees).
TEST(Shuffle, ChiSquareEqualsScipy) {
  const struct {
    double x;
    std::uint64_t degrees;
    double want;
  } kTable[] = {{0.0, 1, 1.0},
                {3.841459, 1, 0.04999999465319563},
                {0.5, 2, 0.7788007830714049},
                {5.99, 2, 0.05003662708658629},
                {6.6666, 3, 0.08331875531360738},
                {0.01, 3, 0.9997348349413444},
                {11.3, 4, 0.02339148655316566},
                {30.0, 5, 1.4748581038443073e-05},
                {2.0, 7, 0.9598403687301016},
                {40.0, 25, 0.02916439562315211},
                {12.0, 24, 0.9799080364605552}};
  for (const auto& row : kTable) {
    EXPECT_NEAR(chi_square_survival(row.x, row.degrees) / row.want, 1, 1e-10) << row.x << " " << row.degrees;
  }
}

// One such item among hundreds must not cost the run its other files.
TEST(ExamOutput, AFormatThatCannotHoldAnItemLeavesTheOthersTheirFiles) {
  ExamItem item = choice_item("A. is no question", {"one", "two", "three"});
  item.id = "1.1-0";
  item.objective_number = "1.1";
  const Exam exam{"t", "en", {item}};
  std::vector<std::string> written;
  const std::vector<std::string> refused =
      export_exam_as({"aiken", "jsonl", "gift"}, exam, [&](const ExamFile& file) { written.push_back(file.suffix); });
  EXPECT_EQ(written, (std::vector<std::string>{".jsonl", ".gift"}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].find("the format aiken cannot hold item 1.1-0"), std::string::npos) << refused[0];
  EXPECT_THROW(export_exam(*find_exam_export("aiken"), exam), std::exception);
}

// A package has a file for each item, and a ZIP archive at most 65,535 files.
TEST(ExamOutput, APackageOfTooManyItemsLeavesTheOthersTheirFiles) {
  Exam exam{"t", "en", std::vector<ExamItem>(70000, choice_item("s", {"one", "two"}))};
  for (std::size_t i = 0; i < exam.items.size(); ++i) exam.items[i].id = "q" + std::to_string(i);
  std::vector<std::string> written;
  const std::vector<std::string> refused =
      export_exam_as({"qti21", "aiken"}, exam, [&](const ExamFile& file) { written.push_back(file.suffix); });
  EXPECT_EQ(written, (std::vector<std::string>{".aiken.txt"}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].find("the format qti21 cannot hold 70000 items"), std::string::npos) << refused[0];
  EXPECT_NE(refused[0].find("65,535"), std::string::npos) << refused[0];
}

}  // namespace exam_checks_test
}  // namespace magister
