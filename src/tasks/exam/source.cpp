// Files of the source as plain text, and their division into chunks.
#include "tasks/exam/source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "magister/core/child_process.h"
#include "magister/core/error.h"
#include "magister/core/utf8.h"
#include "magister/io/file_pattern.h"
#include "magister/io/whole_file.h"
#include "tasks/exam/plain_text.h"

namespace magister {
namespace {

constexpr std::uint64_t kMaxSourceBytes = std::uint64_t{1} << 30;
constexpr double kSecondsOfAPdf = 600;

void check_begins_as_pdf(const std::string& path) {
  std::string begin(5, '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  MAGISTER_CHECK(begin == "%PDF-", ExitCode::kData,
                 "{}: begins with \"{}\" and not with %PDF- (it is no PDF, whatever its name says); save the document "
                 "as PDF or as text",
                 printable(path), printable(begin.substr(0, begin.find('\0'))));
}

// Returns the text layer of a PDF, as `pdftotext PATH -` writes it.
std::string pdf_text(const std::string& path) {
  check_begins_as_pdf(path);
  ProgramAnswer answer =
      ask_program({"pdftotext", "-enc", "UTF-8", "-nopgbrk", std::filesystem::absolute(path).string(), "-"}, "/",
                  kSecondsOfAPdf, kMaxSourceBytes + 1);
  MAGISTER_CHECK(answer.start_error == 0, ExitCode::kData,
                 "{}: pdftotext does not start: {} (it reads the text layer of a PDF); install poppler-utils, or save "
                 "the document as text",
                 printable(path), std::strerror(answer.start_error));
  MAGISTER_CHECK(
      answer.exit_code == 0 && answer.output.size() <= kMaxSourceBytes, ExitCode::kData,
      "{}: pdftotext ends with {} after {} bytes (the file is damaged, needs a password or is too long); save the "
      "document as text",
      printable(path), answer.exit_code, answer.output.size());
  return std::move(answer.output);
}

std::string plain_bytes(const std::string& path) {
  return read_whole_file(path, kMaxSourceBytes, "a source is read at once");
}

bool ends_sentence(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size()) return false;
  const std::string_view before = text.substr(0, at);
  if (before.ends_with("\xE3\x80\x82")) return true;  // the ideographic full stop needs no space after it
  return (text[at] == ' ' || text[at] == '\n') &&
         (before.back() == '.' || before.back() == '!' || before.back() == '?');
}

// The largest position that is at most `at` and begins a code point.
std::size_t whole_characters(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return std::min(at, text.size());
}

// Bytes of the longest beginning of whole characters that fits; at least one character.
std::size_t fitting_bytes(std::string_view text, std::size_t budget, const TextLength& length) {
  const auto fits = [&](std::size_t size) { return length(text.substr(0, size)) <= budget; };
  std::size_t most = std::min(text.size(), budget);
  while (most < text.size() && fits(whole_characters(text, most))) most = std::min(text.size(), 2 * most);
  std::size_t least = utf8_sequence_length(text);
  while (least < most) {
    const std::size_t middle = whole_characters(text, least + (most - least + 1) / 2);
    if (middle > least && fits(middle)) {
      least = middle;
    } else {
      most = middle > least ? whole_characters(text, middle - 1) : least;
    }
  }
  return least;
}

// The beginning of a paragraph that is too long: up to the last end of a sentence that fits, else to the last space.
std::size_t division(std::string_view text, std::size_t budget, const TextLength& length) {
  const std::size_t most = fitting_bytes(text, budget, length);
  if (most == text.size()) return most;
  for (std::size_t at = most; at > 0; --at) {
    if (ends_sentence(text, at)) return at;
  }
  for (std::size_t at = most; at > 0; --at) {
    if (text[at] == ' ' || text[at] == '\n') return at;
  }
  return most;
}

}  // namespace

std::vector<std::string> source_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const std::size_t before = files.size();
    MAGISTER_CHECK(!std::filesystem::is_directory(pattern), ExitCode::kData,
                   "{}: is a folder (it may hold other things than chapters); name its files with a pattern such as {}",
                   printable(pattern), printable((std::filesystem::path(pattern) / "*.md").string()));
    for (const std::string& path : paths_matching(pattern))
      if (std::filesystem::is_regular_file(path)) files.push_back(path);
    MAGISTER_CHECK(files.size() > before, ExitCode::kData,
                   "{}: no such file (an exam needs its source); name a file or a pattern such as chapters/*.md",
                   printable(pattern));
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::string source_text(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension().string();
  for (char& c : ending) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const bool is_html = ending == ".html" || ending == ".htm", is_pdf = ending == ".pdf";
  MAGISTER_CHECK(is_html || is_pdf || ending == ".txt" || ending == ".md" || ending == ".markdown", ExitCode::kData,
                 "{}: files that end in \"{}\" cannot be read as a source (known: .txt, .md, .markdown, .html, .htm, "
                 ".pdf); save the document as one of these",
                 printable(path), printable(ending));
  const std::string bytes = is_pdf ? pdf_text(path) : plain_bytes(path);
  const std::size_t invalid = find_invalid_utf8(bytes);
  MAGISTER_CHECK(invalid == bytes.size(), ExitCode::kData,
                 "{}:{}: byte {} of the file is not UTF-8 (the text would be read wrongly); save the file as UTF-8",
                 printable(path),
                 1 + std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(invalid), '\n'), invalid);
  std::string text = paragraphs_of(is_html ? html_text(bytes) : bytes);
  MAGISTER_CHECK(!text.empty(), ExitCode::kData, "{}: holds no text (an exam is written from its source){}",
                 printable(path),
                 is_pdf ? "; a scanned PDF has no text layer: recognise its characters first"
                        : "; add text or leave the file out");
  return text;
}

std::vector<SourceChunk> chunks_of(std::string_view text, const std::string& path, std::size_t budget,
                                   const TextLength& length) {
  MAGISTER_CHECK(budget > 0, ExitCode::kConfig, "a chunk of 0 (no text fits); give a larger budget");
  std::vector<SourceChunk> chunks;
  std::string chunk;
  const auto end_chunk = [&] {
    if (!chunk.empty()) chunks.push_back({path, chunks.size(), std::move(chunk)});
    chunk.clear();
  };
  const std::string plain = paragraphs_of(text);
  for (std::string_view left = plain; !left.empty();) {
    const std::size_t end = std::min(left.find("\n\n"), left.size());
    std::string_view paragraph = left.substr(0, end);
    left.remove_prefix(std::min(left.size(), end + 2));
    std::string joined = chunk.empty() ? std::string(paragraph) : chunk + "\n\n" + std::string(paragraph);
    if (length(joined) <= budget) {
      chunk = std::move(joined);
      continue;
    }
    end_chunk();
    while (length(paragraph) > budget) {
      const std::size_t size = division(paragraph, budget, length);
      chunk = paragraph.substr(0, size);
      end_chunk();
      paragraph.remove_prefix(size);
      paragraph.remove_prefix(std::min(paragraph.size(), paragraph.find_first_not_of(" \n")));
    }
    chunk = paragraph;
  }
  end_chunk();
  return chunks;
}

std::vector<SourceChunk> read_source(const std::vector<std::string>& patterns, std::size_t budget,
                                     const TextLength& length) {
  std::vector<SourceChunk> all;
  std::string faults;
  ExitCode code = ExitCode::kData;  // of the first fault
  for (const std::string& file : source_files(patterns)) {
    try {
      std::vector<SourceChunk> chunks = chunks_of(source_text(file), file, budget, length);
      std::move(chunks.begin(), chunks.end(), std::back_inserter(all));
    } catch (const Error& error) {
      if (faults.empty()) code = error.code();
      faults += (faults.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  MAGISTER_CHECK(faults.empty(), code, "{}", faults);
  return all;
}

}  // namespace magister
