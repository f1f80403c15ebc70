// The good text files of bad_files_test.cpp, and the tables of the faults in its cases: "field | value instead | words
// of the message".
#pragma once

namespace magister {

// clang-format off
inline constexpr const char* kConfigJson = R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":320,"hidden_size":64,
"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128,"rms_norm_eps":1e-5,
"hidden_act":"silu","bos_token_id":0,"eos_token_id":1,"tie_word_embeddings":false,"rope_theta":5e5,"attention_bias":false,
"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":16}})";
inline constexpr const char* kConfigRows = R"(
/model_type | missing | model_type
/model_type | 7 | model_type
/model_type | "" | model_type
/model_type | "\u001b[2J" | \x1B
/architectures | ["LlamaModel"] | architectures
/architectures | "LlamaForCausalLM" | architectures
/architectures | [7] | architectures
/vocab_size | missing | vocab_size
/vocab_size | 0 | vocab_size
/vocab_size | -320 | vocab_size
/vocab_size | 9223372036854775807 | vocab_size
/vocab_size | 18446744073709551615 | vocab_size
/vocab_size | 320.5 | vocab_size
/vocab_size | [320] | vocab_size
/hidden_size | 1e300 | hidden_size
/hidden_size | true | hidden_size
/hidden_size | {} | hidden_size
/hidden_size | 63 | head size
/intermediate_size | missing | intermediate_size
/intermediate_size | null | intermediate_size
/intermediate_size | -1 | intermediate_size
/num_hidden_layers | missing | num_hidden_layers
/num_hidden_layers | 0 | num_hidden_layers
/num_hidden_layers | 2147483648 | num_hidden_layers
/num_hidden_layers | "2" | num_hidden_layers
/num_attention_heads | 0 | num_attention_heads
/num_attention_heads | -4 | num_attention_heads
/num_attention_heads | 1000000000 | num_attention_heads
/num_key_value_heads | 0 | num_key_value_heads
/num_key_value_heads | 3 | key/value heads
/num_key_value_heads | 8 | key/value heads
/num_key_value_heads | "2" | num_key_value_heads
/head_dim | 0 | head_dim
/head_dim | 1000000 | head_dim
/head_dim | 15 | head size 15
/max_position_embeddings | missing | max_position_embeddings
/max_position_embeddings | -128 | max_position_embeddings
/max_position_embeddings | 1e99 | max_position_embeddings
/rms_norm_eps | 0 | rms_norm_eps
/rms_norm_eps | -1e-5 | rms_norm_eps
/rms_norm_eps | "1e-5" | rms_norm_eps
/rms_norm_eps | 1e9 | rms_norm_eps
/hidden_act | "sigmoid" | hidden_act
/hidden_act | 7 | hidden_act
/bos_token_id | -7 | bos_token_id
/bos_token_id | 1e30 | bos_token_id
/eos_token_id | "</s>" | eos_token_id
/tie_word_embeddings | 1 | tie_word_embeddings
/tie_word_embeddings | "false" | tie_word_embeddings
/attention_bias | "no" | attention_bias
/rope_theta | 0 | rope_theta
/rope_theta | -1 | rope_theta
/rope_theta | "5e5" | rope_theta
/rope_scaling | "llama3" | rope_scaling
/rope_scaling | ["llama3"] | rope_scaling
/rope_scaling/rope_type | "spiral" | spiral
/rope_scaling/rope_type | 3 | rope_type
/rope_scaling/factor | missing | factor
/rope_scaling/factor | 0 | factor
/rope_scaling/factor | -8 | factor
/rope_scaling/factor | 1e300 | factor
/rope_scaling/factor | "8" | factor
/rope_scaling/low_freq_factor | missing | low_freq_factor
/rope_scaling/high_freq_factor | 0 | high_freq_factor
/rope_scaling/high_freq_factor | 0.5 | high_freq_factor
/rope_scaling/original_max_position_embeddings | -16 | original_max_position_embeddings
/rope_scaling/original_max_position_embeddings | 1e300 | original_max_position_embeddings
/rope_scaling/mscale | 1 | mscale
)";

inline constexpr const char* kClassifierJson = R"({"architectures":["LlamaForSequenceClassification"],"model_type":"llama","vocab_size":320,
"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":128,"pad_token_id":3,
"id2label":{"0":"bad","1":"good"},"label2id":{"bad":0,"good":1}})";
inline constexpr const char* kClassifierRows = R"(
/id2label | ["bad","good"] | id2label
/id2label | {"0":"bad","2":"good"} | id2label
/id2label | {"0":"bad","1":7} | id2label
/id2label | {"-1":"bad","0":"good"} | id2label
/id2label | {"zero":"bad"} | id2label
/id2label | {} | id2label
/pad_token_id | -3 | pad_token_id
/pad_token_id | "pad" | pad_token_id
)";

inline constexpr const char* kBpeJson = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":5,"content":"<s>",
"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"Sequence","normalizers":[
{"type":"NFC"},{"type":"Replace","pattern":{"String":"x"},"content":"a"}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[
{"type":"Split","pattern":{"Regex":" ?\\p{L}+| +"},"behavior":"Isolated","invert":false}]},"post_processor":{"type":"TemplateProcessing",
"single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>",
"ids":[5],"tokens":["<s>"]}}},"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},
{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,
"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"<unk>":0,"a":1,"b":2," ":3,"ab":4},
"merges":[["a","b"]]}})";
inline constexpr const char* kBpeRows = R"(
/added_tokens | {} | added_tokens
/added_tokens/0 | "<s>" | added_tokens[0]
/added_tokens/0/id | missing | "id"
/added_tokens/0/id | -1 | added_tokens[0].id
/added_tokens/0/id | 1e30 | added_tokens[0].id
/added_tokens/0/id | 9223372036854775807 | added_tokens[0].id
/added_tokens/0/id | 18446744073709551615 | added_tokens[0].id
/added_tokens/0/content | missing | "content"
/added_tokens/0/content | 7 | added_tokens[0].content
/added_tokens/0/special | "yes" | special
/added_tokens/0/lstrip | 1 | lstrip
/normalizer | [] | normalizer
/normalizer | {"type":"Sequence"} | normalizers
/normalizer/type | missing | normalizer
/normalizer/type | 7 | normalizer.type
/normalizer/normalizers/0/type | "NFX" | NFX
/normalizer/normalizers/1/pattern | missing | pattern
/normalizer/normalizers/1/pattern | {} | pattern
/normalizer/normalizers/1/pattern | {"String":"","Regex":"a"} | pattern
/normalizer/normalizers/1/pattern | {"Regex":"(("} | pattern
/normalizer/normalizers/1/content | null | content
/pre_tokenizer/pretokenizers | {} | pretokenizers
/pre_tokenizer/pretokenizers/0/pattern | {"Regex":"(?<=a"} | pattern
/pre_tokenizer/pretokenizers/0/pattern | {"Regex":7} | pattern
/pre_tokenizer/pretokenizers/0/behavior | missing | behavior
/pre_tokenizer/pretokenizers/0/behavior | "Shredded" | Shredded
/pre_tokenizer/pretokenizers/0/invert | "no" | invert
/pre_tokenizer/pretokenizers/0/type | "CharDelimiterSplit2" | CharDelimiterSplit2
/post_processor/single | {} | single
/post_processor/single | [] | single
/post_processor/single/1/Sequence/id | "B" | single[1]
/post_processor/single/0/SpecialToken/id | "<x>" | <x>
/post_processor/special_tokens | missing | special_tokens
/post_processor/special_tokens/<s>/ids | missing | ids
/post_processor/special_tokens/<s>/ids | [99] | 99
/post_processor/special_tokens/<s>/ids | [-1] | ids[0]
/post_processor/type | "Wrap" | Wrap
/decoder/decoders/0/pattern | {"Regex":"_"} | pattern
/decoder/decoders/1/start | -1 | start
/decoder/decoders/1/start | 1e9 | start
/decoder/decoders/1/content | "ab" | content
/decoder/type | "Mirror" | Mirror
/model | missing | model
/model | [] | model
/model/type | "Oracle" | Oracle
/model/type | 7 | type
/model/dropout | 0.5 | dropout
/model/dropout | "much" | dropout
/model/unk_token | "<none>" | <none>
/model/unk_token | 7 | unk_token
/model/vocab | missing | vocab
/model/vocab | [] | vocab
/model/vocab | {} | vocab
/model/vocab/a | -1 | vocab
/model/vocab/a | 2 | id 2 belongs to two tokens
/model/vocab/a | 4294967296 | vocab
/model/vocab/a | 1.5 | vocab
/model/vocab/a | 2000000000 | 2000000000
/model/merges | missing | merges
/model/merges | {} | merges
/model/merges | [["a"]] | merges
/model/merges | [["a","b","ab"]] | merges
/model/merges | ["ab"] | merges
/model/merges | [7] | merges
/model/merges | [["a","q"]] | merge 0
/model/merges | [["b","a"]] | merge 0
/model/fuse_unk | "no" | fuse_unk
/model/byte_fallback | 7 | byte_fallback
/model/surprise | 1 | surprise
/surprise | 1 | surprise
)";

inline constexpr const char* kUnigramJson = R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Metaspace",
"replacement":"_","prepend_scheme":"always","split":true},"post_processor":null,"decoder":null,"model":{"type":"Unigram","unk_id":0,
"byte_fallback":false,"vocab":[["<unk>",0.0],["_",-1.0],["a",-2.0],["b",-3.0]]}})";
inline constexpr const char* kUnigramRows = R"(
/model/unk_id | -1 | unk_id
/model/unk_id | 4 | unk_id
/model/unk_id | "0" | unk_id
/model/unk_id | 1e30 | unk_id
/model/vocab | {} | vocab
/model/vocab | [] | vocab
/model/vocab/1 | ["_"] | vocab[1]
/model/vocab/1 | "_" | vocab[1]
/model/vocab/1 | ["_","high"] | vocab[1]
/model/vocab/1 | [7,-1.0] | vocab[1]
/model/vocab/1 | ["_",null] | vocab[1]
/model/vocab/2 | ["_",-2.0] | vocab
/pre_tokenizer/replacement | "" | replacement
/pre_tokenizer/replacement | "__" | replacement
/pre_tokenizer/prepend_scheme | "sometimes" | sometimes
/pre_tokenizer/split | "yes" | split
/normalizer | {"type":"Precompiled","precompiled_charsmap":"!!!"} | precompiled_charsmap
/normalizer | {"type":"Precompiled","precompiled_charsmap":"/////w=="} | precompiled charsmap
/normalizer | {"type":"Precompiled"} | precompiled_charsmap
)";

inline constexpr const char* kTekkenRows = R"(
/config | missing | config
/config/pattern | missing | pattern
/config/pattern | "((" | tekken.json
/config/pattern | 7 | pattern
/config/default_vocab_size | missing | default_vocab_size
/config/default_vocab_size | -1 | default_vocab_size
/config/default_vocab_size | 1e30 | default_vocab_size
/config/default_vocab_size | 300 | do not add up
/config/default_num_special_tokens | 0 | do not add up
/config/default_num_special_tokens | 10000000 | default_num_special_tokens
/config/default_num_special_tokens | "3" | default_num_special_tokens
/vocab | missing | vocab
/vocab | {} | vocab
/vocab/0/token_bytes | "!" | token_bytes
/vocab/0/token_bytes | missing | token_bytes
/vocab/0/token_bytes | "AQ==" | bytes of another
/vocab/0/rank | 7 | vocab[0].rank
/vocab/0/rank | -1 | vocab[0].rank
/special_tokens/0/rank | 3 | special_tokens[0].rank
/special_tokens/0/rank | 1 | special_tokens
/special_tokens/0/token_str | 7 | token_str
/special_tokens | 7 | special_tokens
)";

// field: what is replaced in the list of 256 bytes.
inline constexpr const char* kTiktokenRows = R"(
AQ== 1 | AQ== | tokenizer.model:2
AQ== 1 | AQ== one | tokenizer.model:2
AQ== 1 | AQ== -1 | tokenizer.model:2
AQ== 1 | AQ== 2 | its rank is 2 where 1 follows
AQ== 1 | AQ== 18446744073709551616 | tokenizer.model:2
AQ== 1 | AQ== 1 1 | tokenizer.model:2
AQ== 1 | A*== 1 | tokenizer.model:2
AQ== 1 | AQ= 1 | tokenizer.model:2
AQ== 1 | missing | its rank is 2 where 1 follows
AQ== 1 | AQ==	1 | tokenizer.model:2
/w== 255 | /w== 255 | a list of 256 tokens
)";

// field: what is wrong; instead: the template.
inline constexpr const char* kTemplateRows = R"(
a block without an end | {% for m in messages %}x | t.jinja:1:
an end without a block | {% endfor %} | t.jinja:1:4
an expression without an end | {{ messages | t.jinja:1:
a string without an end | {{ 'abc }} | t.jinja:1:
a comment without an end | {# never | t.jinja:1:
an unknown statement | {% include 'x' %} | include
an unknown filter | {{ 1 | frobnicate }} | frobnicate
an unknown test | {{ 1 is frobnicated }} | frobnicated
an unknown filter in a branch without a condition | {{ 1 | frobnicate }} | frobnicate
inheritance | {% extends 'x' %} | extends
a macro that calls itself | {% macro f() %}{{ f() }}{% endmacro %}{{ f() }} | t.jinja:1:
macros that call each other | {% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }} | t.jinja:1:
a loop over 10^12 | {% for i in range(1000000000000) %}{% endfor %} | t.jinja:1:
a text of 10^12 bytes | {{ 'a' * 1000000000000 }} | t.jinja:1:
a list of 10^12 entries | {{ [1] * 1000000000000 }} | t.jinja:1:
a power of 10^6 digits | {{ 10 ** 1000000 }} | t.jinja:1:
a negative power of nothing | {{ 0 ** -1 }} | t.jinja:1:
a division by nothing | {{ 1 / 0 }} | t.jinja:1:
a remainder of nothing | {{ 1 % 0 }} | t.jinja:1:
a number beyond 64 bits | {{ 99999999999999999999 }} | t.jinja:1:
a sum beyond 64 bits | {{ 9223372036854775807 + 1 }} | t.jinja:1:
a padding of 10^12 | {{ 'a' | center(1000000000000) }} | t.jinja:1:
an indentation of 10^12 | {{ 'a\nb' | indent(1000000000000) }} | t.jinja:1:
a format of 10^12 columns | {{ '%1000000000000d' % 1 }} | t.jinja:1:
a format with too few values | {{ '%d %d' % 1 }} | t.jinja:1:
a step of nothing | {{ l[::0] }} | t.jinja:1:
a range with a step of nothing | {{ range(1, 2, 0) | list }} | t.jinja:1:
a call of a text | {{ 'a'() }} | t.jinja:1:
an attribute of what is not there | {{ nothing.at.all }} | nothing
an order of unlike things | {{ [1, 'a'] | sort }} | t.jinja:1:
the inside of an object | {{ ''.__class__.__mro__ }} | t.jinja:1:
a refusal | {{ raise_exception('not so') }} | not so
a date without a day | {{ strftime_now('%Y') }} | today's date
)";

inline constexpr const char* kSafetensorsHeader = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},
"b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})";
inline constexpr const char* kSafetensorsRows = R"(
/a/dtype | missing | a
/a/dtype | 7 | dtype
/a/dtype | "F33" | F33
/a/dtype | "" | dtype
/a/dtype | null | dtype
/a/shape | missing | shape
/a/shape | 4 | shape
/a/shape | [2,-2] | shape
/a/shape | [2,2.5] | shape
/a/shape | ["2",2] | shape
/a/shape | [[2],2] | shape
/a/shape | [4294967296,4294967296,4294967296] | a
/a/shape | [18446744073709551616] | model.safetensors
/a/shape | [0,2] | a
/a/data_offsets | missing | data_offsets
/a/data_offsets | [0] | data_offsets
/a/data_offsets | [0,16,24] | data_offsets
/a/data_offsets | [16,0] | a
/a/data_offsets | [0,18446744073709551615] | a
/a/data_offsets | [-1,15] | data_offsets
/a/data_offsets | [8,24] | a
/a/data_offsets | "0-16" | data_offsets
/a/surprise | 1 | surprise
/__metadata__ | [] | __metadata__
/__metadata__/format | 7 | __metadata__
/b | 7 | b
/b/data_offsets | [0,8] | b
)";

// field: the metadata key; instead: how gguf_model() writes it.
inline constexpr const char* kGgufRows = R"(
general.architecture | missing | general.architecture is missing
general.architecture | u32 7 | general.architecture is 7
general.architecture | text fancy | fancy
general.alignment | u32 0 | general.alignment
general.alignment | u32 33 | general.alignment
general.alignment | u32 4294967295 | general.alignment
general.alignment | text 32 | general.alignment
llama.block_count | missing | llama.block_count
llama.block_count | u32 0 | llama.block_count
llama.block_count | i32 -1 | llama.block_count
llama.block_count | u32 4294967295 | llama.block_count
llama.block_count | text one | llama.block_count
llama.block_count | f32 1 | llama.block_count
llama.block_count | u32 2 | blk.1.
llama.embedding_length | missing | llama.embedding_length
llama.embedding_length | u32 0 | llama.embedding_length
llama.embedding_length | i32 -8 | llama.embedding_length
llama.embedding_length | u32 16 | token_embd.weight
llama.embedding_length | u64 18446744073709551615 | llama.embedding_length
llama.feed_forward_length | missing | llama.feed_forward_length
llama.feed_forward_length | u32 13 | ffn_
llama.feed_forward_length | i32 -12 | llama.feed_forward_length
llama.attention.head_count | missing | llama.attention.head_count
llama.attention.head_count | u32 0 | llama.attention.head_count
llama.attention.head_count | u32 3 | llama.attention.key_length
llama.attention.head_count | u32 4294967295 | llama.attention.head_count
llama.attention.head_count_kv | u32 0 | llama.attention.head_count_kv
llama.attention.head_count_kv | text two | llama.attention.head_count_kv
llama.attention.head_count_kv | u32 3 | key/value heads
llama.attention.key_length | u32 5 | head size 5
llama.attention.key_length | i32 -4 | llama.attention.key_length
llama.attention.value_length | u32 2 | llama.attention.value_length
llama.attention.layer_norm_rms_epsilon | missing | llama.attention.layer_norm_rms_epsilon
llama.attention.layer_norm_rms_epsilon | f32 0 | llama.attention.layer_norm_rms_epsilon
llama.attention.layer_norm_rms_epsilon | f32 -1 | llama.attention.layer_norm_rms_epsilon
llama.attention.layer_norm_rms_epsilon | nan 0 | llama.attention.layer_norm_rms_epsilon
llama.attention.layer_norm_rms_epsilon | text small | llama.attention.layer_norm_rms_epsilon
llama.context_length | missing | llama.context_length
llama.context_length | u32 0 | llama.context_length
llama.context_length | i32 -64 | llama.context_length
llama.rope.freq_base | f32 0 | llama.rope.freq_base
llama.rope.freq_base | nan 0 | llama.rope.freq_base
llama.rope.dimension_count | u32 3 | llama.rope.dimension_count
llama.rope.scaling.type | text spiral | llama.rope.scaling.type
llama.rope.scaling.type | u32 1 | llama.rope.scaling.type
llama.rope.scaling.type | text linear | llama.rope.scaling.factor
llama.rope.scaling.type | text yarn | llama.rope.scaling.factor
llama.expert_count | u32 8 | llama.expert_used_count
llama.attn_logit_softcapping | f32 30 | llama.attn_logit_softcapping
llama.attention.sliding_window_pattern | u32 4 | llama.attention.sliding_window_pattern
llama.vocab_size | u32 7 | token_embd.weight
split.count | u32 2 | split.no
split.count | i32 -2 | split.count
tokenizer.ggml.model | missing | tokenizer.ggml.model
tokenizer.ggml.model | u32 7 | tokenizer.ggml.model
tokenizer.ggml.model | text oracle | oracle
tokenizer.ggml.pre | u32 7 | tokenizer.ggml.pre
tokenizer.ggml.pre | text nobody | nobody
tokenizer.ggml.tokens | missing | tokenizer.ggml.tokens
tokenizer.ggml.tokens | u32 7 | tokenizer.ggml.tokens
tokenizer.ggml.tokens | texts a | tokenizer.ggml.eos_token_id is 1
tokenizer.ggml.token_type | numbers 1 | 1 token types
tokenizer.ggml.token_type | numbers -1 | tokenizer.ggml.token_type
tokenizer.ggml.token_type | texts a | tokenizer.ggml.token_type
tokenizer.ggml.merges | numbers 1 | tokenizer.ggml.merges
tokenizer.ggml.merges | texts a | m.gguf
tokenizer.ggml.bos_token_id | u32 4000000 | tokenizer.ggml.bos_token_id
tokenizer.ggml.bos_token_id | text one | tokenizer.ggml.bos_token_id
tokenizer.ggml.bos_token_id | i32 -2 | tokenizer.ggml.bos_token_id
tokenizer.ggml.eos_token_id | u64 18446744073709551615 | tokenizer.ggml.eos_token_id
tokenizer.ggml.add_bos_token | u32 1 | tokenizer.ggml.add_bos_token
)";
// clang-format on

}  // namespace magister
