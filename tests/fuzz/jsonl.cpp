// Lines of JSONL: the fields that data sets ask for, by name and by path, and whole records.
#include "fuzz/fuzz_target.h"
#include "io/dataset/jsonl_record.h"
#include "magister/core/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace magister;
  static const std::vector<DatasetConfig> configs = [] {
    std::vector<DatasetConfig> out(5);
    out[1].key_field = "id";
    out[2].text_field = "a.b[0].c";
    out[2].key_field = "m[-1].k";
    out[3].tokens_field = "ids";
    out[4].whole_record = true;
    out[4].key_field = "id";
    return out;
  }();
  for (const DatasetConfig& config : configs) {
    JsonlParser parser(config);
    // Twice, because state left by one line must not change the next.
    for (int round = 0; round < 2; ++round) {
      Record record;
      fuzz::read_or_refuse({ExitCode::kData}, [&] {
        parser.parse(fuzz::text_of(data, size), "d.jsonl:1", record);
        fuzz::require(find_invalid_utf8(record.text) == record.text.size(), "a text that is not UTF-8");
        fuzz::require(find_invalid_utf8(record.key) == record.key.size(), "a key that is not UTF-8");
      });
    }
  }
  return 0;
}
