// The source of an exam: files of text, Markdown, HTML or PDF (its text layer), divided into chunks of whole
// paragraphs, and lexical retrieval over the chunks. Local, deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace magister {

struct SourceChunk {
  std::string path;
  std::uint64_t number = 0;  // in its file, from 0
  std::string text;          // whole paragraphs, separated by an empty line
};

// Length of a text in the unit of the budget: its tokens, or its bytes where no tokenizer is at hand.
using TextLength = std::function<std::size_t(std::string_view text)>;

// The files that a path or a pattern (`*`, `?` and `[...]` as glob(3) has them) names, in byte order. Error(kData) if
// there is none.
std::vector<std::string> source_files(const std::vector<std::string>& patterns);

// The plain text of a file, paragraphs separated by one empty line. The kind is decided by the name's end: .txt, .md,
// .markdown, .html, .htm, .pdf. A PDF is read by the program pdftotext of poppler. Error(kData) names the file and the
// reason: another kind, no pdftotext, bytes that are not UTF-8, no text.
std::string source_text(const std::string& path);
std::string html_text(std::string_view html);

// Divides a text into chunks of at most `budget` units. A paragraph that is longer is divided at the ends of its
// sentences, a longer sentence at spaces, a longer word between characters. Every paragraph is in exactly one chunk or
// in consecutive ones; no text is dropped but white space at places of division.
std::vector<SourceChunk> chunks_of(std::string_view text, const std::string& path, std::size_t budget,
                                   const TextLength& length);

// Reads and divides all files. Error(kData) with the faults of all files, one in a line.
std::vector<SourceChunk> read_source(const std::vector<std::string>& patterns, std::size_t budget,
                                     const TextLength& length);

// BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework", 2009) with k1 = 1.2 and b = 0.75 over words
// after NFKC and case folding; idf = log(1 + (N - n + 0.5) / (n + 0.5)).
class ChunkIndex {
 public:
  explicit ChunkIndex(const std::vector<SourceChunk>& chunks);
  struct Hit {
    std::size_t chunk;
    double score;
  };
  // The `most` best chunks, best first; of equal scores the earlier chunk first. Chunks without a word of the query
  // follow with score 0 in order, so that a query always gets min(most, N) chunks.
  std::vector<Hit> best(std::string_view query, std::size_t most) const;

 private:
  std::vector<std::pair<std::string, std::vector<std::pair<std::uint32_t, std::uint32_t>>>> postings_;  // by word
  std::vector<double> length_norm_;                                                                     // [N]
};

}  // namespace magister
