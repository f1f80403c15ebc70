// llama.cpp's own ids, for compare_foreign.py: `llama_cpp_ids FILE.gguf ADD_SPECIAL TEXTS`. TEXTS holds texts separated
// by "\n__ggml_vocab_test__\n"; the output is one line of ids per text. ADD_SPECIAL 1: with BOS and EOS as the file
// requires; special tokens written in a text are parsed in both cases. Not built by CMakeLists.txt; with a build of
// llama.cpp:
//  c++ -std=c++17 -I llama.cpp/include -I llama.cpp/ggml/include llama_cpp_ids.cpp -L llama.cpp/build/bin -lllama
//    -o llama_cpp_ids
#include <llama.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) return 65;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  std::ifstream file(argv[3], std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {}), between = "\n__ggml_vocab_test__\n";
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find(between, begin), all.size());
    std::vector<llama_token> ids(end - begin + 8);
    const int count = llama_tokenize(vocab, all.data() + begin, static_cast<int>(end - begin), ids.data(),
                                     static_cast<int>(ids.size()), argv[2][0] == '1', true);
    if (count < 0) return 70;
    for (int i = 0; i < count; ++i) std::printf(i == 0 ? "%d" : " %d", ids[static_cast<std::size_t>(i)]);
    std::printf("\n");
    begin = end + between.size();
  }
  llama_model_free(model);
  return 0;
}
