// The source of an exam and its objectives: text of every kind of file, chunks that lose nothing, BM25 by its formula.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "magister/core/error.h"
#include "magister/io/whole_file.h"
#include "magister/text/folded.h"
#include "tasks/exam/objectives.h"
#include "tasks/exam/source.h"

namespace magister {
namespace exam_source_test {

std::size_t bytes(std::string_view text) { return text.size(); }

class ExamSource : public ::testing::Test {
 protected:
  ExamSource() : folder_(std::filesystem::temp_directory_path() / ("exam_source_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ExamSource() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, std::string_view text) {
    write_whole_file((folder_ / name).string(), text);
    return (folder_ / name).string();
  }
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  std::filesystem::path folder_;
};

TEST_F(ExamSource, TextIsParagraphs) {
  EXPECT_EQ(source_text(file("a.txt", "\xEF\xBB\xBFOne  \r\nline.\r\n\r\n\r\n Two.\fThree.\x01\n\n")),
            "One\nline.\n\n Two.\n\nThree.");
  EXPECT_EQ(html_text("<html><head><title>T</title></head><body><h1>Cells &amp; co</h1><p>a &lt; b,\n c&#x2265;d &bad; "
                      "<b>bold</b><br>new</p><script>if (a<b) {}</script><!-- no --><ul><li>x</li><li>y</li></ul>"
                      "1 < 2 <p title='a>b'>end"),
            "Cells & co\n\na < b, c≥d &bad; bold\nnew\n\nx\ny\n\n1 < 2\n\nend");
  EXPECT_EQ(html_text("<p>kept <b \"unclosed"), "kept <b \"unclosed");
}

TEST_F(ExamSource, RefusesByName) {
  const auto refusal = [&](const std::string& path) { return message_of([&] { source_text(path); }); };
  EXPECT_NE(refusal(file("a.docx", "x")).find("a.docx: files that end in \".docx\" cannot be read"), std::string::npos);
  EXPECT_NE(refusal(file("b.txt", " \n")).find("b.txt: holds no text"), std::string::npos);
  EXPECT_NE(refusal(file("c.md", "a\nb \xFF")).find("c.md:2: byte 4 of the file is not UTF-8"), std::string::npos);
  EXPECT_NE(message_of([&] { source_files({(folder_ / "*.tex").string()}); }).find("no such file"), std::string::npos);
  EXPECT_NE(message_of([&] { source_files({folder_.string()}); }).find("is a folder"), std::string::npos);
  EXPECT_NE(refusal(file("d.pdf", "plain text")).find("d.pdf: begins with \"plain\" and not with %PDF-"),
            std::string::npos);
  const std::string both = message_of([&] {
    read_source({(folder_ / "b.txt").string(), (folder_ / "c.md").string()}, 10,
                [](std::string_view t) { return t.size(); });
  });
  EXPECT_NE(both.find("b.txt"), std::string::npos);
  EXPECT_NE(both.find("c.md"), std::string::npos) << "the faults of all files are named";
}

TEST_F(ExamSource, PatternsGiveFilesInByteOrderOnce) {
  const std::string b = file("b.md", "b"), a = file("B.md", "a"), c = file("[c].md", "c");
  EXPECT_EQ(source_files({(folder_ / "*.md").string(), b, c}), (std::vector<std::string>{a, c, b}));
}

TEST_F(ExamSource, PdfIsReadByPdftotextOrRefusedByName) {
  const std::string broken = file("broken.pdf", "%PDF-1.4 and no more");
  const std::string without = message_of([&] { source_text(broken); });
  if (std::system("pdftotext -v >/dev/null 2>&1") != 0) {
    EXPECT_NE(without.find("pdftotext does not start"), std::string::npos) << without;
    GTEST_SKIP() << "pdftotext is not installed; a PDF is refused by name";
  }
  EXPECT_NE(without.find("broken.pdf: pdftotext ends with"), std::string::npos) << without;
  const std::string pdf = file(
      "cell.pdf",
      "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
      "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj\n"
      "4 0 obj<</Length 44>>stream\nBT /F 12 Tf 20 100 Td (The cell divides.) Tj ET\nendstream endobj\n"
      "5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n");
  EXPECT_EQ(source_text(pdf), "The cell divides.");
}

std::string without_space(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ' && c != '\n') result += c;
  }
  return result;
}

TEST_F(ExamSource, ChunksKeepEveryCharacterWithinTheBudget) {
  std::mt19937 random(1);
  const std::string pieces[] = {"word ", "a sentence ends. ", "longerwordthanothers ", "é", "漢字。", "\n", "\n\n",
                                "x! "};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 80; ++i) text += pieces[random() % std::size(pieces)];
    const std::size_t budget = 4 + random() % 120;
    std::string seen;
    std::uint64_t number = 0;
    for (const SourceChunk& chunk : chunks_of(text, "t.md", budget, bytes)) {
      EXPECT_LE(chunk.text.size(), budget);
      EXPECT_FALSE(chunk.text.empty());
      EXPECT_EQ(chunk.number, number++);
      seen += chunk.text;
    }
    ASSERT_EQ(without_space(seen), without_space(text));
  }
}

TEST_F(ExamSource, ChunksEndAtParagraphsThenSentencesThenWords) {
  std::vector<std::string> texts;
  for (const SourceChunk& chunk : chunks_of(
           "One.\n\nTwo.\n\nA first sentence. A second sentence here.\n\nabcdefghijklmnopqrstuvwxyz", "t", 20, bytes)) {
    texts.push_back(chunk.text);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"One.\n\nTwo.", "A first sentence.", "A second sentence", "here.",
                                             "abcdefghijklmnopqrst", "uvwxyz"}));
}

TEST_F(ExamSource, RetrievalIsBm25) {
  std::mt19937 random(2);
  const std::string words[] = {"cell", "Cell", "wall", "plant", "light", "STRASSE", "straße", "ion", "3.14", "don't"};
  std::vector<SourceChunk> chunks;
  for (std::uint64_t i = 0; i < 40; ++i) {
    std::string text;
    for (std::size_t n = 1 + random() % 12; n > 0; --n) text += words[random() % std::size(words)] + ", ";
    chunks.push_back({"t", i, text});
  }
  chunks.push_back({"t", 40, chunks[3].text});  // a tie
  const ChunkIndex index(chunks);
  for (const std::string query : {"the CELL wall", "Straße ion ion", "3.14 don't", "nothing"}) {
    std::vector<std::pair<double, std::size_t>> want;
    double mean = 0;
    for (const auto& chunk : chunks) mean += static_cast<double>(folded_words(chunk.text).size()) / chunks.size();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const auto all = folded_words(chunks[i].text);
      double score = 0;
      for (const std::string& word : folded_words(query)) {
        const double f = std::count(all.begin(), all.end(), word);
        double n = 0;
        for (const auto& chunk : chunks) {
          const auto other = folded_words(chunk.text);
          n += std::count(other.begin(), other.end(), word) > 0;
        }
        const double idf = std::log(1 + (chunks.size() - n + 0.5) / (n + 0.5));
        score += idf * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * all.size() / mean));
      }
      want.emplace_back(-score, i);
    }
    std::sort(want.begin(), want.end(), [](const auto& a, const auto& b) {
      return std::abs(a.first - b.first) > 1e-9 ? a.first < b.first : a.second < b.second;
    });
    const auto hits = index.best(query, 7);
    ASSERT_EQ(hits.size(), 7u);
    for (std::size_t i = 0; i < hits.size(); ++i) {
      EXPECT_EQ(hits[i].chunk, want[i].second) << query << " " << i;
      EXPECT_NEAR(hits[i].score, -want[i].first, 1e-9);
    }
  }
  EXPECT_TRUE(ChunkIndex({}).best("cell", 3).empty());
}

TEST(FoldedWords, AreThoseThatPeopleCompare) {
  EXPECT_EQ(folded("  Ｃｅｌｌ\u00a0 ﬁne\u00ad\u200b "), "cell fine");
  EXPECT_EQ(folded_words("Don't stop, 3.14 end. 漢字 naïve"),
            (std::vector<std::string>{"don't", "stop", "3.14", "end", "漢", "字", "naïve"}));
}

TEST(Objectives, AreNumberedLines) {
  const ObjectiveList list =
      read_objectives("# unit 1\r\n1.1.1.1 Name the parts\r\n\r\n 1.1.1.2. Say why\n2\tLast", "o.txt");
  EXPECT_TRUE(list.faults.empty());
  ASSERT_EQ(list.objectives.size(), 3u);
  EXPECT_EQ(list.objectives[1].number, "1.1.1.2");
  EXPECT_EQ(list.objectives[1].text, "Say why");
  EXPECT_EQ(list.objectives[1].line, 4u);
  EXPECT_EQ(list.objectives[2].number, "2");
}

TEST(Objectives, FaultsNameTheirLines) {
  const ObjectiveList list = read_objectives("1.1 a\nName it\n1.1.\n1.01 again\n1.2a x\n", "o.txt");
  ASSERT_EQ(list.faults.size(), 4u);
  EXPECT_TRUE(list.faults[0].starts_with("o.txt:2: \"Name it\" begins with no number")) << list.faults[0];
  EXPECT_TRUE(list.faults[1].starts_with("o.txt:3: the objective 1.1 has no text")) << list.faults[1];
  EXPECT_TRUE(list.faults[2].starts_with("o.txt:4: the number 1.01 is also that of o.txt:1")) << list.faults[2];
  EXPECT_TRUE(list.faults[3].starts_with("o.txt:5: \"1.2a x\" begins with no number")) << list.faults[3];
  EXPECT_EQ(read_objectives("\n# none\n", "o.txt").faults.size(), 1u);
  EXPECT_EQ(read_objectives("1.1 \xFF", "o.txt").faults.size(), 1u);
}

TEST(Objectives, AreReadFromYaml) {
  const std::string text = "objectives:\n  - {number: 1.10, text: \"a: b\"}\n  - 1.2 Say why\n";
  const ObjectiveList list = read_objectives(text, "o.yaml");
  EXPECT_TRUE(list.faults.empty()) << list.faults[0];
  ASSERT_EQ(list.objectives.size(), 2u);
  EXPECT_EQ(list.objectives[0].number, "1.10");
  EXPECT_EQ(list.objectives[0].text, "a: b");
  EXPECT_EQ(list.objectives[1].text, "Say why");
  const ObjectiveList bad = read_objectives("objectives:\n  - {text: a}\n  - {number: 1, note: b}\n", "o.yml");
  ASSERT_EQ(bad.faults.size(), 3u);
  EXPECT_TRUE(bad.faults[0].starts_with("o.yml:3: note is not part")) << bad.faults[0];
  EXPECT_TRUE(bad.faults[1].starts_with("o.yml:2: has no number")) << bad.faults[1];
  EXPECT_TRUE(bad.faults[2].starts_with("o.yml:3: the objective 1 has no text")) << bad.faults[2];
  EXPECT_EQ(read_objectives("- 1.1 a\n- [\n", "o.yml").faults.size(), 1u);
}

TEST(Objectives, AHundredThousandAreRead) {
  std::string text;
  for (int i = 1; i <= 100'000; ++i) text += "1." + std::to_string(i) + " text\n";
  EXPECT_EQ(read_objectives(text, "o.txt").objectives.size(), 100'000u);
  std::string bad;
  for (int i = 0; i < 100'000; ++i) bad += "text\n";
  const ObjectiveList list = read_objectives(bad, "o.txt");
  EXPECT_EQ(list.faults.size(), kMaxObjectiveFaults + 1);
  EXPECT_EQ(list.faults.back(), "o.txt: 99980 more faults");
}

TEST(Objectives, AreOrderedAsNumbers) {
  EXPECT_TRUE(objective_before("1.2", "1.10"));
  EXPECT_FALSE(objective_before("1.10", "1.2"));
  EXPECT_TRUE(objective_before("1", "1.1"));
  EXPECT_FALSE(objective_before("1.1", "1.1"));
}

}  // namespace exam_source_test
}  // namespace magister
