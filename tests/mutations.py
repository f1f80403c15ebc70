"""Do the tests notice? Each mutation is a small fault put into a copy of the sources; the program is built again and the tests named
beside it must fail. A table tells which did. Outside CI; the last table stands in tests/README.md.

usage: tests/mutations.py [--only NAME ...] [--list] [--check] [--markdown]
Needs what `scripts/setup.sh test` brings. Works in build-mutations/tree (a copy of the tracked and new files, with a build folder); your
own files are only read. Safe to stop and to run again. The first run builds everything once; a mutation then costs about a minute on
two cores. Exit status 0 only when every mutation was noticed and every test passes without one.
"""
import argparse
import dataclasses
import filecmp
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build-mutations"
TREE = WORK / "tree"
BUILD = TREE / "build"  # as in the repository itself, so that ccache knows the files
PYTHON = ROOT / ".deps/venv/bin/python"


@dataclasses.dataclass(frozen=True)
class Mutation:
    name: str
    file: str       # below the root
    search: str     # occurs once
    replace: str
    test: str       # "TARGET [gtest filter]" of a C++ test, or "SCRIPT.py [Class.test ...]"


LAYER, GPU, SAMPLER = "src/model/cpu/attention.cpp", "src/model/gpu/gpu_model.cpp", "src/engine/sampler.cpp"
SUMMARY, TEACHER_ROWS = "src/tasks/judge/summary.cpp", "src/tasks/teacher_logits/rows.cpp"
ANSWER, ESTIMATORS = "src/text/math_answer.cpp", "src/tasks/evaluate/estimators.cpp"
EVALUATED = "tests/end_to_end/evaluate_test.py Evaluate.test_shares_against_all_subsets"
SUMMARIES = "tests/end_to_end/judge_summaries_test.py Summaries."
ADAPTER, MERGING = "src/io/checkpoint/lora_factors.cpp", "tests/end_to_end/adapter_test.py Adapter."
LORA = "tests/end_to_end/lora_test.py Lora."
ENCODERS = "tests/end_to_end/encoders_test.py Encoders."
OSS = "tests/model/families_test.py gpt_oss gpt_oss_uneven"
ON_GPU = "tests/end_to_end/gpu_code_test.py GpuCode."
PEERS = "src/parallel/gpu/peer_sum_kernel.h"
MIXED = "tests/end_to_end/mixed_groups_test.py MixedGroups."

DISTILL = "tests/end_to_end/distill_test.py Distill."
TEXTS = "tests/end_to_end/grpo_test.py Grpo."
PAIRS, REWARDS = "tests/end_to_end/preference_test.py Preference.", "tests/end_to_end/reward_test.py Reward."
ROW, DRAWS, ROWS = "src/train/distill_loss.cpp", "src/engine/tail_sampler.cpp", "src/tasks/teacher_logits/teacher_file.cpp"

MUTATIONS = [
    # The choice of keys.
    Mutation("an-indexer-s-scores-below-zero-count", "src/model/cpu/indexer.cpp", "weights_I[head] * std::max(of_head[key], 0.0f);", "weights_I[head] * of_head[key];", "tests/model/sparse_attention_test.py"),
    # The guide.
    Mutation("a-prefix-that-ends-inside-a-page", "src/model/cpu/layer_buffers.cpp", "next += page_border(shared) - shared;", "", "tests/end_to_end/score_answers_test.py ScoreAnswers.test_common_beginnings_change_no_bit"),
    Mutation("shares-the-row-that-is-read", "src/model/shared_prefixes.cpp", "std::min(common_tokens(sequences[s - 1], sequences[s]), wanted_S[s]);", "common_tokens(sequences[s - 1], sequences[s]);", "test_model_shared_prefixes"),
    Mutation("answers-of-the-unit-s-first-record", "src/tasks/score/answers.cpp", "const std::uint64_t begin = sample % group,", "const std::uint64_t begin = 0,", "tests/end_to_end/score_answers_test.py ScoreAnswers.test_texts_of_a_generate_task"),
    Mutation("guide-keeps-another-page", "src/engine/value_guide.cpp", "held.pages.push_back(held.candidates[place]);", "held.pages.push_back(held.candidates[0]);", "test_engine_guide Guided.*"),
    Mutation("guide-shares-the-last-page", "src/engine/value_guide.cpp", "pages.copy_page(from[i], to[i]);", "(void)pages;", "test_engine_guide Guided.*"),
    Mutation("guide-cuts-nothing", "src/engine/logits_processor.cpp", "std::fill(logits_V.begin(), logits_V.end(), kExcluded);", "", "test_engine_guide Guided.*"),
    Mutation("guide-before-the-penalty", "src/engine/generator.cpp", "references.push_back(sampler.processed(*asked[i], rows.rows[i].logits_V));",
             "references.emplace_back(rows.rows[i].logits_V.begin(), rows.rows[i].logits_V.end());", "test_engine_guide Guided.*"),
    Mutation("guide-kl-to-the-candidates", "src/engine/guide.cpp", "const double normaliser = log_of_row(logits_V);", "const double normaliser = 0;", "test_engine_guide Guided*"),
    Mutation("guide-kl-beside-its-offsets", "src/engine/guide.cpp", "  const double top = largest_offset(tokens);", "  const double top = 0;", "test_engine_guide GuideKl.*"),
    Mutation("guide-hides-the-reference", "src/engine/logits_processor.cpp", "(offset - top)", "(offset - 0 * top)", "test_engine_guide GuidedDistribution.*"),
    Mutation("candidates-hide-the-reference", "src/engine/sampler.cpp", "(guided[i].offset - top)", "(guided[i].offset - 0 * top)", "test_engine_guide GuidedDistribution.*"),
    Mutation("counts-unknown-before-the-texts", "src/tasks/evaluate/task.cpp", "    check_method(name, scorer->record_texts(inputs.context));\n", "", "tests/end_to_end/needs_bad_input_test.py"),
    Mutation("answers-of-any-records", "src/tasks/generate/record_answers.cpp", 'held ? faults_by_place(dataset, *held) : "";', 'held ? "" : "";', "tests/end_to_end/needs_bad_input_test.py"),
    Mutation("last-tokens-are-not-told", "src/run/generator_shard.cpp", "  report_written(true);\n", "", "tests/end_to_end/history_test.py History.test_written_tokens_are_told_apart_from_prompts"),
    Mutation("config-without-a-stand-in", "src/run/earlier_tasks.cpp", " || no_config", "", "tests/end_to_end/random_start_test.py RandomStart.test_config_and_tokenizer_of_a_model_that_is_trained_before"),
    Mutation("judge-without-a-stand-in", "src/run/side_model.cpp", "available_model(section, context, is_placeholder_)", "section", "tests/end_to_end/rollout_test.py Rollout.test_a_judge_that_an_earlier_task_trains"),
    Mutation("histogram-beside-its-numbers", "src/engine/guide.cpp", "for (double& value : plain) value -= top;", "(void)top;", "test_engine_guide GuideOffset.*"),
    Mutation("bernoulli-beside-its-number", "src/engine/guide.cpp", "if (z >= 0) return multiplier + std::log1p(std::exp(-z) / (1 + std::exp(-z)) * std::expm1(-multiplier));", "", "test_engine_guide GuideOffset.*"),
    Mutation("histogram-without-its-sum", "src/engine/guide.cpp", "log_of_sum<double>(tilted) - log_of_sum<double>(plain)", "log_of_sum<double>(tilted)", "test_engine_guide GuideOffset.*"),
    Mutation("guide-not-in-the-identity", "src/tasks/generate/guide.cpp", "Attributes attributes = model_.identity(world, poll);", "Attributes attributes;", "tests/end_to_end/guided_test.py Guided.test_same_bytes_for_ranks_kills_and_budgets"),
    # What a trial from outside found.
    Mutation("escapes-of-any-length", "src/engine/constraint.cpp", 'fmt::format("\\\\u{:04x}", byte)', 'fmt::format("\\\\x{:02x}", byte)', "test_engine_constraint Masks.*"),
    Mutation("an-equal-folder-is-put-aside", "src/tasks/train/model_folder.cpp", "if (has_same_files(folder, creating)) return;", "", "tests/end_to_end/train_test.py Train.test_a_kill_between_folder_and_results"),
    Mutation("any-folder-for-a-trained-model", "src/runtime/checkpoint.cpp", "trained.empty() || trained == sha256,", "true,", "tests/end_to_end/student_folder_test.py StudentFolder.test_a_folder_that_is_not_what_was_trained_is_refused"),
    Mutation("any-folder-for-a-trained-adapter", "src/runtime/checkpoint.cpp", "if (!section_.adapter_task.empty() || !section_.task.empty())", "if (false)", "tests/end_to_end/student_folder_test.py StudentFolder.test_a_folder_that_is_not_what_was_trained_is_refused"),
    Mutation("done-by-an-earlier-start", "src/app/status_command.cpp", "ResultsFile::State::kComplete && reported.empty()", "ResultsFile::State::kComplete", "tests/end_to_end/history_test.py History.test_a_task_s_state_is_that_of_the_newest_start"),
    Mutation("done-before-it-starts-over", "src/app/status_command.cpp", "(at_work && past.start.fresh)", "false", "tests/end_to_end/history_test.py History.test_a_task_s_state_is_that_of_the_newest_start"),
    Mutation("events-of-the-last-start", "src/app/run_record.cpp", "return start.id == id;", "return true;", "tests/end_to_end/at_once_test.py AtOnce.test_a_second_start_ends_before_any_of_its_tasks_begins"),
    Mutation("every-start-but-the-last-was-killed", "src/app/history_command.cpp", 'if (!holder) return is_last ? "no end" : "killed";', 'if (!holder || !is_last) return is_last ? "no end" : "killed";', "tests/end_to_end/at_once_test.py AtOnce.test_a_second_start_ends_before_any_of_its_tasks_begins"),
    Mutation("any-table-beside-an-evaluation", "src/tasks/evaluate/task.cpp", '  check_side_file(".csv", summary_csv(*found));\n', "", "tests/end_to_end/evaluate_test.py Evaluate.test_what_stands_beside_the_evaluation_is_what_it_says"),
    Mutation("any-base-for-an-adapter", "src/runtime/checkpoint.cpp", "found.base.empty() || trained_on.empty() ||", "true ||", LORA + "test_an_adapter_of_another_model"),
    Mutation("the-adapter-is-in-its-base-s-hash", "src/runtime/model_hash.cpp", "  found.base = hash();", "  found.base = found.whole;", LORA + "test_an_adapter_of_another_model"),
    Mutation("no-summary-is-missed", "src/tasks/judge/task.cpp", '{".summary.json", ".summary.csv"}', '{".json"}', "tests/end_to_end/judge_inputs_test.py JudgeInputs.test_a_summary_is_made_again_with_other_labels"),
    Mutation("damaged-state-is-final", "src/train/checkpoint.cpp", "loaded.damaged.push_back(", "throw Damaged(path, problem); loaded.damaged.push_back(", "tests/end_to_end/train_test.py Train.test_a_damaged_state_is_put_aside_where_an_older_one_is_sound"),
    Mutation("tasks-are-not-locked-in-advance", "src/app/run_locks.cpp", "if (!fresh && is_complete(path)) continue;", "continue;", "tests/end_to_end/at_once_test.py AtOnce.test_a_second_start_ends_before_any_of_its_tasks_begins"),
    # gpt-oss, RoBERTa, arrays of token ids.
    Mutation("sinks-left-out", LAYER, "if (weights_.sinks.defined()) {", "if (false) {", OSS),
    Mutation("sink-of-the-first-head", LAYER, "maximum[r] = sinks[single ? r : 0];", "maximum[r] = sinks[0];", "tests/end_to_end/families_test.py Families.test_greedy_ids_are_those_of_transformers"),
    Mutation("gates-and-ups-exchanged", "src/model/parameter_table.cpp", "(!up ? 0 : halves ? rows : 1);", "(up ? 0 : halves ? rows : 1);", OSS),
    Mutation("experts-bias-on-every-shard", "src/model/weights_experts.cpp", "if (row.expert_name != &TensorNames::Layer::Expert::down_bias || tp_rank_ > 0) continue;", "if (row.expert_name != &TensorNames::Layer::Expert::down_bias) continue;", OSS),
    Mutation("up-not-clamped", "src/model/cpu/kernels/cpu_kernels.inc", "u = top < -limit ? splat(-limit) : top;", "u = top;", OSS),
    Mutation("yarn-always-cut", "src/model/rope.cpp", "rope.truncates ? std::floor(first) : first", "std::floor(first)", OSS),
    Mutation("attention-factor-left-out", "src/model/rope.cpp", "const double factor = rope_of(config, table).attention_factor;", "const double factor = 1.0;", "tests/model/families_test.py olmo3_yarn"),
    Mutation("halves-of-mxfp4-exchanged", "src/io/checkpoint/quantized_weight.cpp", "kNumbers[i % 2 == 0 ? pair & 15 : pair >> 4] * scale", "kNumbers[i % 2 == 0 ? pair >> 4 : pair & 15] * scale", "tests/io/foreign_packers_test.py ForeignPackers.test_mxfp4"),
    Mutation("padding-is-counted", "src/model/cpu/encoder_model.cpp", "ids[t] == padding ? padding : next++", "next++", ENCODERS + "test_values_labels_and_tokens"),
    Mutation("offsets-may-go-back", "src/io/dataset/token_arrays.cpp", "begin >= 0 && begin <= end &&", "begin >= 0 &&", "tests/io/dataset_formats_test.py TokenArrays"),
    # Losses of training, a teacher's rows.
    Mutation("bucket-without-gradient", ROW, "    sum += u_tail;\n", "", "test_train_head_loss"),
    Mutation("temperature-not-squared", ROW, "return {loss * options_.temperature * options_.temperature,", "return {loss,", "test_train_head_loss"),
    Mutation("label-s-gradient-left-out", "src/train/row_loss.cpp", "if (options_.gradient && at_label != 0)", "if (false)", "test_train_head_loss"),
    Mutation("last-group-left-out", "src/train/head_tile.cpp", "for (std::int64_t g = 0; g < num_groups(); ++g) {", "for (std::int64_t g = 0; g + 1 < num_groups(); ++g) {", "test_train_head_loss"),
    Mutation("cap-s-derivative-left-out", "src/train/row_loss.h", "return 1 - ratio * ratio;", "return 1 + 0 * ratio;", "test_train_head_loss"),
    Mutation("draws-take-kept-entries", DRAWS, "if (has_kept && std::binary_search", "if (false && std::binary_search", "test_engine_tail_sampler"),
    Mutation("draws-of-one-uniform", "src/tasks/teacher_logits/worker.cpp", "key.position = static_cast<std::uint64_t>(position);", ";", "tests/end_to_end/teacher_encodings_test.py TeacherEncodings.test_draws_are_unbiased"),
    # Held-out losses.
    Mutation("held-out-labels-of-all", "src/tasks/train/held_out.h", "return token > offset_[sample] && learnt_[token] != 0;", "return token > offset_[sample];", "tests/end_to_end/held_out_test.py"),
    Mutation("held-out-references-of-the-state", "src/tasks/train/run.cpp", "    if (!work_.open.begin_steps(inputs_)) return;\n    resume();\n",
             "    resume();\n    if (!work_.open.begin_steps(inputs_)) return;\n", "tests/end_to_end/held_out_pairs_test.py Dpo.test_ranks_and_kills_change_nothing"),
    Mutation("held-out-rows-of-other-samples", "src/tasks/train/held_out.cpp", "records_.begin() + static_cast<std::ptrdiff_t>(items.begin),", "records_.begin(),", "tests/end_to_end/held_out_pairs_test.py Distill.test_against_torch"),
    Mutation("buckets-sent-before-the-last-micro-batch", "src/train/gradient_tree.cpp", "return bucket.missing == 0;", "return bucket.missing <= 1;", "test_train_gradient_tree"),
    Mutation("borders-of-buckets-forgotten", "src/train/micro_gradient.cpp", "flat.narrow(0, in_range, count)", "flat.narrow(0, 0, count)", "test_train_gradient_tree MicroGradient.*"),
    Mutation("fast-sums-of-the-first-node", "src/train/gradient_tree.cpp", "if (options_.fast) add_up_own(", "if (false) add_up_own(", "test_train_gradient_tree"),
    Mutation("rounds-of-a-bucket-with-one-tag", "src/train/gradient_tree.cpp", "(bucket.index * rounds + static_cast<std::int64_t>(bucket.round)) % kNumTags", "0 * rounds", "test_train_gradient_tree"),
    Mutation("gradients-put-twice", "src/train/micro_gradient.cpp", "  if (is_put_[parameter]) return;\n", "", "tests/end_to_end/train_memory_test.py Memory.test_a_pass_without_memory_is_repeated"),
    Mutation("held-out-data-not-in-identity", "src/tasks/train/open.cpp", 'attributes.emplace_back("evaluate_dataset_sha256", held_out_->sha256());', 'attributes.emplace_back("evaluate_dataset_sha256", std::string("x"));', "tests/end_to_end/held_out_test.py"),
    Mutation("shifted-rows-taken", ROWS, "const bool fits =\n        t + 1 < L &&", "const bool fits =\n        true ||", "tests/tasks/teacher_rows_test.py"),
    Mutation("crc-not-looked-at", "src/io/results/checked_units.cpp", "      stored == found, ExitCode::kData,", "      true || stored == found, ExitCode::kData,", "tests/tasks/teacher_rows_test.py"),
    # A distillation, and what earlier tasks make.
    Mutation("teacher-s-rows-shifted", "src/tasks/train/objectives/distill.cpp", "std::copy_n(rows.top_logprobs.begin(), length * W,", "std::copy_n(rows.top_logprobs.begin() + W, (length - 1) * W,", DISTILL + "test_every_loss_and_tail_against_torch"),
    Mutation("tail-mass-not-given", "src/tasks/train/objectives/distill.cpp", "std::copy_n(rows.tail_mass.begin(), length,", "std::fill_n(targets.teacher_tail_T.data_ptr<float>() + row, length, NAN);\n    std::copy_n(rows.tail_mass.begin(), 0,",
             DISTILL + "test_every_loss_and_tail_against_torch"),
    Mutation("distill-temperature-ignored", "src/tasks/train/objectives/distill.cpp", "options.temperature = section.number(", "section.number(", DISTILL + "test_every_loss_and_tail_against_torch"),
    Mutation("lm-weight-ignored", "src/tasks/train/objectives/distill.cpp", "options.lm_weight = section.number(", "section.number(", DISTILL + "test_every_loss_and_tail_against_torch"),
    Mutation("rows-without-score-learnt", "src/tasks/train/objectives/distill.cpp", "learnt[t + 1] = sample.valid[t];", "learnt[t + 1] = 1;", DISTILL + "test_rows_that_were_not_scored_are_not_learnt"),
    Mutation("stand-in-stays", "src/app/open_tasks.cpp", "(plan_ranks_ || !task.step->awaits_earlier())", "(true)", DISTILL + "test_one_experiment_teaches_learns_and_writes"),
    Mutation("adapter-of-an-earlier-task-read-early", "src/experiment/model_section.cpp", "if (!adapter_task.empty()) section.adapter.clear();", "", "tests/end_to_end/at_once_test.py AtOnce.test_paths_name_what_earlier_tasks_make"),
    Mutation("data-of-an-earlier-task-read-early", "src/run/earlier_tasks.cpp", "if (!at.is_output_of(earlier->name())) continue;", "continue;", "tests/end_to_end/at_once_test.py AtOnce.test_paths_name_what_earlier_tasks_make"),
    Mutation("verifiers-think-they-are-alone", "src/runtime/device_group.cpp", "alone.place_in_job = layout.place_in_job;", "", "tests/end_to_end/at_once_test.py AtOnce.test_tasks_without_a_model_on_a_part_of_one_rank"),
    Mutation("nccl-counted-for-each-model", "src/runtime/open_model.cpp", "is_second ? without_shared(std::move(parts)) : parts", "parts", "tests/end_to_end/guided_test.py Guided.test_models_of_a_group_count_their_communicator_once"),
    Mutation("constraint-not-sent", "src/engine/gpu_candidates.cpp", "if (excludes) exclude(logits_RV, histories);", "", "test_engine_gpu_candidates"),
    Mutation("sum-of-what-may-come", "src/engine/gpu_candidates.cpp", "return sums_R2.defined() ?", "return false ?", "test_engine_gpu_candidates"),
    Mutation("needs-not-waited-for", "src/app/task_graph.cpp", "if (--unmet_[next] == 0 && !out_[next])", "--unmet_[next];\n    if (ready_.count({-chain_cost_[next], next}) == 0 && !out_[next])", "test_app_task_graph"),
    Mutation("a-long-task-has-one-group", "src/app/task_graph.cpp", "if (share > left && usable >= groups) break;", "", "test_app_task_graph"),
    Mutation("groups-wait-for-a-task-that-divides", "src/app/task_graph.cpp", "if (share > left && usable >= groups) break;", "if (share > left) break;", "test_app_task_graph"),
    Mutation("groups-of-a-team-taken-one-by-one", "src/app/task_graph.cpp", "if (num_leaving_ > 0) return starts;", "", "test_app_task_graph"),
    Mutation("gpu-by-the-place-in-the-part", "src/parallel/layout_solver.cpp", "static_cast<std::ptrdiff_t>(rank.gpu_rank) * count", "static_cast<std::ptrdiff_t>(rank.world_rank) * count", "test_parallel_layout_solver"),
    Mutation("tokens-of-a-rank-s-first-group", "src/parallel/unit_tickets.cpp", "window_->group_index + group_here)", "window_->group_index)", "test_parallel_unit_tickets"),
    Mutation("plan-of-the-first-gpu-alone", "src/runtime/device_group.cpp", "    if (!row.gpu) continue;", "    if (!row.gpu || row.gpu->index != 0) continue;", "tests/end_to_end/gpu_code_test.py GpusOfARank.test_a_plan_looks_at_every_gpu"),
    Mutation("candidates-cost-nothing", "src/tasks/generate/task.cpp", "(reference + value * (guided ?", "(reference + 0 * (guided ?", "tests/end_to_end/guided_test.py Guided.test_an_evaluation_tells_the_kl"),
    Mutation("votes-cost-as-one", "src/tasks/evaluate/summary.cpp", "one * static_cast<double>(k)", "one", "tests/end_to_end/evaluate_test.py Evaluate.test_methods_at_equal_cost"),
    Mutation("weights-of-another-type-kept", "src/runtime/open_model.cpp", "dtype_name(dtype), layers())}", '"", "")}', "tests/end_to_end/at_once_test.py AtOnce.test_weights_stay_from_task_to_task"),
    Mutation("other-models-not-kept", "src/run/task_life.cpp", "std::vector<std::string> names = job_->keep_weights(store, expected);", "std::vector<std::string> names; job_->keep_weights(store, expected);",
             "tests/end_to_end/rollout_test.py Rollout.test_weights_of_other_models_stay"),
    Mutation("rewards-of-the-first-pass", "src/tasks/score/reward_model.cpp", "{at(range.begin), at(range.end)}, true)", "{at(0), at(range.end - range.begin)}, true)", "tests/end_to_end/rollout_test.py Rollout.test_on_a_gpus_code"),
    Mutation("kl-of-the-first-text", "src/tasks/generate/generated_texts.cpp", 'return sum_of(generate_column::kGuideKl.path, i);', 'return sum_of(generate_column::kGuideKl.path, 0);', "tests/end_to_end/guided_test.py Guided.test_an_evaluation_tells_the_kl"),
    Mutation("plan-without-written-tokens", "src/run/time_estimate.cpp", "2 * (work.read + work.written)", "2 * work.read", "tests/end_to_end/groups_test.py Groups.test_plan_shows_every_task"),
    Mutation("left-out-by-one-alone", "src/app/run_tasks.cpp", "bool has_failed(std::uint64_t outcome) { return outcome != kNotEnded", "bool has_failed(std::uint64_t outcome) { return outcome != kSkipped && outcome != kNotEnded", "tests/end_to_end/at_once_test.py AtOnce.test_a_failed_task_leaves_the_others"),
    Mutation("reward-model-stands-in", "src/tasks/train/objectives/grpo.cpp", "return reward_.is_placeholder();", "return false;", TEXTS + "test_a_reward_model_of_an_earlier_task"),
    Mutation("cuts-not-drawn", "src/tasks/rollout/worker.cpp", "const double u = keyed_uniform({stream(config.seed, kCuts), source, c, 0});", "const double u = 0;", "tests/end_to_end/rollout_test.py"),
    Mutation("cuts-as-they-come", "src/tasks/rollout/worker.cpp", "keyed_uniform({stream(config.seed, kCuts), source, c, 0})", "keyed_uniform({stream(config.seed, kCuts), records_.size(), c, 0})", "tests/end_to_end/rollout_test.py"),
    Mutation("coin-without-rewards", "src/tasks/rollout/worker.cpp", "1 / (1 + std::exp(-config.beta * (static_cast<double>(a.reward) - b.reward)))", "0.5", "tests/end_to_end/rollout_test.py"),
    Mutation("reference-is-guided", "src/tasks/rollout/worker.cpp", "request.guided = config.continue_guided;", "request.guided = true;", "tests/end_to_end/rollout_test.py"),
    Mutation("greedy-text-is-drawn", "src/engine/scheduler.cpp", "request.greedy && i == 0;", "false;", "tests/end_to_end/rollout_test.py"),
    Mutation("value-rows-shifted", "src/tasks/train/samples.cpp", "marked.push_back(static_cast<std::int64_t>(t));", "marked.push_back(static_cast<std::int64_t>(t) - 1);", "tests/end_to_end/value_test.py"),
    Mutation("long-texts-count-more", "src/train/value_loss.cpp", "const double weight = 1 / static_cast<double>(text.rows.size());", "const double weight = 0.2;", "tests/end_to_end/value_test.py"),
    Mutation("atom-below", "src/train/value_loss.cpp", "static_cast<std::int64_t>(std::lround(label * static_cast<double>(L - 1)))", "static_cast<std::int64_t>(label * static_cast<double>(L - 1))", "tests/end_to_end/value_test.py"),
    Mutation("loser-wins", "src/tasks/train/objectives/value.cpp", "preferred == Preferred::kWon ? i : i + 1,", "preferred == Preferred::kWon ? i + 1 : i,", "tests/end_to_end/value_test.py"),
    Mutation("round-counts-from-zero", "src/core/config_groups.cpp", "for (std::int64_t round = 1; round <= *count; ++round)", "for (std::int64_t round = 1; round < *count; ++round)", "test_core_config_groups"),
    Mutation("matrix-value-is-a-text", "src/core/config_groups.cpp", "scalar.quoted = found->variable->quoted;", ";", "test_core_config_groups"),
    Mutation("own-seed-stays", "src/run/task_kinds.cpp", "  experiment.seed = shared;", "  ;", "tests/end_to_end/groups_test.py Groups.test_same_bytes_as_written_out"),
    Mutation("regex-gives-up-and-ends", "src/text/verifier.cpp", "if (gave_up_.exchange(true)) return;", "fail(ExitCode::kData, \"x (y); z\");", "tests/text/verifier_test.py"),
    Mutation("units-stay", "src/text/verifier.cpp", "text = without_unit(stripped(plain));", "text = stripped(plain);", "tests/text/verifier_test.py"),
    Mutation("a-range-is-negative", "src/text/verifier.cpp", "text[begin - 1] == '-' && !joins(text, begin - 1) ?", "text[begin - 1] == '-' ?", "tests/text/verifier_test.py"),
    Mutation("ascii-s-minus-alone", "src/text/verifier.cpp", "auto_number(plain_separators(plain_signs(text)));", "auto_number(plain_separators(text));", "tests/text/verifier_test.py"),
    Mutation("answers-as-doubles", "src/tasks/score/verifier_config.cpp", "out += '\"' + without_exponent(line.substr(at, end - at)) + '\"';", "out += '\"' + ordered_json::parse(line.substr(at, end - at)).dump() + '\"';",
             "tests/end_to_end/evaluate_test.py Evaluate.test_numbers_as_answers_keep_their_digits"),
    Mutation("names-in-a-table-unquoted", "src/run/summary_csv.cpp", "if (text.find_first_of(\",\\\"\\r\\n\") == std::string::npos) return text;", "return text;", "tests/end_to_end/evaluate_test.py Evaluate.test_methods_at_equal_cost"),
    Mutation("a-pattern-is-a-model", "src/tasks/evaluate/task.cpp", 'method.of_model ? "model" : "pattern without a group"', '"model"', "tests/end_to_end/evaluate_test.py Evaluate.test_bad_input"),
    Mutation("fraction-left-out", "src/text/verifier.cpp", "begin = numerator;", ";", "tests/text/verifier_test.py"),
    # Products, attention, norms.
    Mutation("no-rope", LAYER, "kernels.rope(row + head * E, rope.cos[begin + r], rope.sin[begin + r], shape_.rotary_dim / 2);", ";", "test_model_decoder_layer"),
    Mutation("q-zeroed", LAYER, "    if (shape_.keys_are_values) std::copy(keys, values, values);\n", "    std::fill(row, keys, 0.0f);\n", "test_model_decoder_layer"),
    Mutation("window-off-by-one", "src/model/layer_shape.cpp", "std::max<std::int64_t>(0, position - window + 1)", "std::max<std::int64_t>(0, position - window)",
             "test_model_decoder_layer"),
    Mutation("norm-epsilon", "src/model/cpu/cpu_model.cpp", "block_input(norms, shape.rms_norm_eps,",
             "block_input(norms, 100 * shape.rms_norm_eps,", "tests/model/families_test.py llama_tied"),
    Mutation("shard-sum-left-out", "src/model/cpu/cpu_model.cpp", "    group_.all_reduce_sum(pass.partial_TD);\n    for_row_tiles", "    for_row_tiles",
             "tests/end_to_end/same_bytes_test.py SameBytes.test_shards"),
    Mutation("output-norm-left-out", "src/model/cpu/block_norms.cpp", "if (norms.output_D.defined()) {", "if (false) {", "tests/model/own_family_test.py"),
    Mutation("gpu-experts-not-weighed", "src/model/gpu/expert_kernels.h", "sums[j] += weights_Tk[first + i] * row[j];", "sums[j] += row[j];", "tests/model/families_test.py mixtral"),
    Mutation("gpu-squares-of-one-shard", "src/model/gpu/gpu_attention.cpp", "  squares.add(squares_T2);\n", "", "tests/model/families_test.py olmo2"),
    Mutation("squares-of-one-shard", "src/model/cpu/cpu_model.cpp", "    group_.all_reduce_sum(pass.buffers.squares_T2);\n", "", "tests/model/families_test.py olmo2"),
    Mutation("mixed-range-not-reached", "src/io/dataset/dataset.cpp", "order->taken_before(range.begin), to", "order->taken_before(0), to", "tests/io/dataset_mix_test.py"),
    Mutation("gpu-output-norm-left-out", GPU, "pass.delta_norm_D = norms.output_D;", "", "tests/model/own_family_test.py"),
    Mutation("gelu-as-silu", "src/model/layer_shape.cpp", "shape.activation = config.activation;", "", "tests/model/own_family_test.py"),
    Mutation("softcap-left-out", LAYER, "if (shape_.attention_softcap > 0) {", "if (false) {", "tests/model/families_test.py gemma2"),
    Mutation("gguf-neox-rows-by-head", "src/model/families/gpt_neox.cpp", "set_blocks(config, source.boolean(\"use_parallel_residual\"));", "set_blocks(config, source.boolean(\"use_parallel_residual\"));\n  config.fused_qkv_by_head = true;", "tests/model/families_test.py gguf_gpt_neox"),
    Mutation("gguf-longrope-short-for-long", "src/model/families/phi3.cpp", "rope.long_factor = source.divisors(kLong, size);", "rope.long_factor = source.divisors(kShort, size);", "tests/model/families_test.py gguf_phi3_longrope"),
    Mutation("decode-softcap-left-out", "src/model/gpu/attention_kernels.h", "if (a.softcap > 0) {", "if (false) {", "tests/model/families_test.py gemma2"),
    Mutation("gpu-logit-softcap-left-out", "src/model/transformer.cpp", "return softcap > 0 ? logits.div_(softcap)", "return false ? logits.div_(softcap)",
             "tests/model/families_test.py gemma2_uneven"),
    Mutation("layer-norm-keeps-the-mean", "src/model/cpu/block_norms.cpp", "x_RD[r * D + d] - mean;", "x_RD[r * D + d] - 0 * mean;", "tests/model/families_test.py cohere"),
    Mutation("granite-eps-of-the-whole-stream", "src/model/families/scaled_stream.h", "  config.rms_norm_eps /= multiplier * multiplier;\n", "",
             "tests/model/families_test.py granite"),
    Mutation("expert-sum-in-any-weight", "src/model/cpu/experts.cpp", "sum_D[d] += weight * row[d];", "sum_D[d] += row[d] * (weight > 0.5f ? weight : 0.5f);",
             "tests/model/families_test.py mixtral"),
    Mutation("experts-of-the-whole-softmax", "src/model/routes.cpp", "if (!normed || std::binary_search", "if (true || std::binary_search", "tests/model/families_test.py qwen3_moe"),
    Mutation("clip-left-out", "src/model/layer_shape.cpp", "  shape.clip_qkv = static_cast<float>(config.clip_qkv);\n", "", "tests/model/families_test.py olmoe"),
    Mutation("norm-bias-left-out", "src/model/cpu/block_norms.cpp", "if (norms.input_bias_D.defined())", "if (false)", "tests/model/families_test.py gpt_neox"),
    Mutation("positions-shifted", "src/model/cpu/cpu_model.cpp", "batch.positions_T.const_data_ptr<std::int32_t>()[t], row_D", "0 * batch.positions_T.const_data_ptr<std::int32_t>()[t], row_D",
             "tests/model/families_test.py gpt2"),
    Mutation("heads-of-neox-in-rows", "src/model/weights.cpp", "return (head / group * (group + 2) + head % group) * E;", "return first + head * E;", "tests/model/families_test.py gpt_neox"),
    Mutation("kv-page-shifted", "src/model/kv_pages.cpp", "const std::int64_t slot = sequence.offset + index,", "const std::int64_t slot = sequence.offset + (index < 48 ? index : index - 48),",
             "test_engine_generator Generating.*"),
    # Adapters.
    Mutation("adapter-s-scale-left-out", "src/io/checkpoint/lora_adapter.cpp", "static_cast<float>(config_.scale_of(change.key))", "1.0f", MERGING + "test_log_probs_are_peft_s"),
    Mutation("adapter-ignored-at-load", "src/io/checkpoint/lora_adapter.cpp", "if (found == merged_.end() || row_begin", "if (true || row_begin", MERGING + "test_log_probs_are_peft_s"),
    Mutation("adapter-of-the-first-rows", ADAPTER, "file_->read(b, begin, end, 0,", "file_->read(b, 0, end - begin, 0,", MERGING + "test_files_that_fuse_layers"),
    Mutation("adapter-of-the-first-columns", ADAPTER, "(expert + 1) * R, window.column_begin, window.column_end,", "(expert + 1) * R, 0, window.column_end - window.column_begin,", MERGING + "test_log_probs_are_peft_s"),
    Mutation("adapter-of-the-next-expert", ADAPTER, "->select(0, expert)", "->select(0, (expert + 1) % change.experts)", "tests/end_to_end/mixture_adapter_test.py MixtureAdapter.test_log_probs_are_peft_s"),
    Mutation("rope-of-the-text-s-own-length", "src/model/rope.cpp", "rope.fixed_length > 0 ? rope.fixed_length : sequence_length", "sequence_length", "tests/end_to_end/rope_length_test.py RopeLength.test_texts_beyond_the_limit"),
    Mutation("adapter-not-in-the-identity", "src/io/checkpoint/lora_adapter.cpp", "paths_.push_back(std::move(path))", "(void)path", MERGING + "test_another_adapter_is_another_experiment"),
    Mutation("layers-without-a-part-taken", "src/io/checkpoint/lora_adapter.cpp", "!targets.contains(layer.substr(begin))", "true || !targets.contains(layer.substr(begin))", MERGING + "test_weights_that_are_refused"),
    Mutation("lora-scale-left-out", "src/train/layer_weights.cpp", "if (lora != nullptr) scale_ = lora->scale();", "", LORA + "test_steps_are_peft_s"),
    Mutation("lora-begins-with-b", "src/train/lora.cpp", "at::Tensor a_RK = view(flat, pair.a);", "at::Tensor a_RK = view(flat, pair.b);", LORA + "test_steps_are_peft_s"),
    Mutation("lora-draws-alike", "src/train/lora.cpp", "^ 0x4c6f5241) + pair.a)", "^ 0x4c6f5241))", LORA + "test_steps_are_peft_s"),
    Mutation("base-counted-as-trained", "src/train/training_bytes.cpp", "return factors > 0 ? factors : weight_bytes(config);", "return weight_bytes(config);", LORA + "test_plan_counts_the_adapter_s_memory"),
    Mutation("adapter-on-an-adapter", "src/tasks/train/open.cpp", "checkpoint_.section().adapter.empty(),", "true || checkpoint_.section().adapter.empty(),", LORA + "test_what_is_refused"),
    # Training.
    Mutation("trunk-window-off-by-one", "src/model/plain_attention.cpp", "(query - key < window)", "(query - key <= window)", "tests/train/oracle_test.py mistral_window"),
    Mutation("chunks-are-windows", "src/model/layer_shape.cpp", "shape.chunked_windows = config.chunked_windows && shape.sliding_window > 0;", "", "tests/model/families_test.py llama4"),
    Mutation("experts-outputs-weighed", "src/model/families/llama4.cpp", "config.router.weighs_inputs = true;", "", "tests/model/families_test.py llama4"),
    Mutation("far-experts-have-a-share", "src/model/routes.cpp", "> 2 * margin", "> 20 * margin", "tests/model/families_test.py phimoe"),
    Mutation("alibi-of-each-shard", "src/model/layer_shape.cpp", "alibi_slope(config.alibi_max, static_cast<std::int64_t>(head), config.num_attention_heads)",
             "alibi_slope(config.alibi_max, static_cast<std::int64_t>(head - partition.heads.begin), config.num_attention_heads)", "tests/model/families_test.py bloom"),
    Mutation("embedding-gradient-lost", "src/train/trunk.cpp", "embedding_gradient_VD.index_add_(0, token_ids_T_,", "embedding_gradient_VD.index_copy_(0, token_ids_T_,", "tests/train/oracle_test.py llama_tied"),
    Mutation("shared-keys-without-gradient", "src/train/trunk.cpp", "if (of_kv[layer].k_TKE.defined()) {", "if (false) {", "tests/train/oracle_test.py gemma4_shared_keys"),
    Mutation("vectors-without-gradient-of-embeddings", "src/train/trunk.cpp", "gradient_TD = gradient_TD + put_vectors(", "put_vectors(", "tests/train/oracle_test.py gemma4_per_layer"),
    Mutation("first-vector-gets-the-addend", "src/model/cpu/cpu_stream.cpp", "for (std::int64_t a = 1; a < A; ++a) {", "for (std::int64_t a = 0; a < A; ++a) {", "tests/model/families_test.py gemma3n"),
    Mutation("mean-of-a-shards-gates", "src/model/cpu/feed_forward.cpp", "rows, shape_.all_mlp);", "rows, F);", "tests/model/families_test.py gemma3n"),
    Mutation("norms-decay", "src/train/parameters.cpp", "decays.value_or(shape.size() > 1)", "decays.value_or(shape.size() > 0)", "tests/train/oracle_test.py llama_biases"),
    Mutation("sinks-do-not-decay", "src/train/parameters.cpp", "is_sink           ? std::optional(true)", "is_sink           ? std::optional(false)", "tests/train/oracle_test.py gpt_oss"),
    Mutation("router-without-gradient", "src/model/routes.cpp", "at::softmax(logits_TX, 1)).gather(", "at::softmax(logits_TX.detach(), 1)).gather(", "tests/train/oracle_test.py olmoe"),
    Mutation("choice-bias-left-out", "src/model/routes.cpp", "choice[x] += choice_bias[x];", "choice[x] += 0;", "tests/model/families_test.py minimax_m2"),
    Mutation("choice-bias-in-the-weights", "src/model/routes.cpp", "weights[i] = static_cast<float>(scores[static_cast<std::size_t>(experts[i])] / divisor", "weights[i] = static_cast<float>(choice[static_cast<std::size_t>(experts[i])] / divisor", "tests/model/families_test.py minimax_m2"),
    Mutation("all-groups-of-experts", "src/model/routes.cpp", "std::vector<bool> outside(choice.size(), config.groups > 1);", "std::vector<bool> outside(choice.size(), false);", "tests/model/families_test.py glm4_moe"),
    Mutation("shared-experts-of-the-first-columns", "src/model/weights_experts.cpp", "{first + columns.begin, first + columns.end}", "columns", "tests/model/families_test.py qwen2_moe"),
    Mutation("xielu-without-its-line", "src/model/cpu/feed_forward.cpp", "const float linear = Xielu::kBeta * x[i];", "const float linear = 0 * x[i];", "tests/model/families_test.py apertus"),
    Mutation("xielu-without-beta-below-zero", "src/model/weights.cpp", "Xielu::kBeta + softplus(names.xielu_alpha_n)", "softplus(names.xielu_alpha_n)", "tests/model/families_test.py apertus"),
    Mutation("head-of-the-text-config-alone", "src/model/families/hf_config.cpp", "tied(*root_, outer->tied_by_default) ||", "false ||", "tests/model/families_test.py qwen3_vl"),
    Mutation("positions-of-the-batch", "src/train/trunk.cpp", "at::arange(batch.cu_seqlens[s + 1] - batch.cu_seqlens[s], at::kLong)", "at::arange(batch.cu_seqlens[s], batch.cu_seqlens[s + 1], at::kLong)", "tests/train/oracle_test.py gpt2"),
    Mutation("qkv-of-heads-as-rows", "src/train/layer_weights.cpp", "if (is_one && config_.fused_qkv_by_head && layer_.table[first].product == FusedProduct::kQkv) {", "if (false) {", "tests/train/oracle_test.py gpt_neox"),
    Mutation("adapter-of-inputs-first-not-turned", "src/train/weights_file.cpp", "adapter_->layout.inputs_first()", "false", "tests/end_to_end/student_families_test.py StudentFamilies.test_texts_by_an_adapter"),
    Mutation("gradients-summed-by-arrival", "src/train/gradient_tree.cpp", "sibling{node.first, node.second ^ 1}", "sibling{node.first, node.second > 0 ? node.second - 1 : 1}", "tests/end_to_end/train_test.py Train.test_ranks_threads_kills_and_stops_change_nothing"),
    Mutation("weights-of-other-hosts-not-sent", "src/train/host_weights.cpp", "      broadcast_all(first_of_hosts_, pieces);\n", "", "test_train_flat_shards"),
    Mutation("copies-of-weights-not-gathered", "src/train/host_weights.cpp", "if (!is_shared_) return gather_pieces(world, shards, flat_);", "if (!is_shared_) return;", "test_train_flat_shards"),
    Mutation("gpu-weights-not-sent", "src/train/trainer.cpp", "    is_sent_ = false;\n    return;", "    return;", ON_GPU.replace("gpu_code", "train_gpu_code") + "test_where_the_optimizer_stands_changes_nothing"),
    Mutation("gpu-weights-not-exchanged", "src/train/trainer.cpp", "  gather_weights();\n  copies_.to_device(weights_on_host(), weights_on_device());\n", "", ON_GPU.replace("gpu_code", "train_gpu_code") + "test_where_the_optimizer_stands_changes_nothing"),
    Mutation("gpu-weights-not-restored", "src/train/checkpoint.cpp", "      trainer->copies().to_device(values, weights.narrow(0, range.begin, range.size()));\n", "", ON_GPU.replace("gpu_code", "train_gpu_code") + "test_ranks_kills_and_memory_change_nothing"),
    Mutation("gpu-s-norms-decay", "src/train/gpu/optimizer_kernels.h", "tile.decays != 0 ? rates.keep : 1.0f", "rates.keep", "test_train_gpu_optimizer"),
    Mutation("gpu-s-flag-not-read", "src/train/micro_gradient.cpp", "return finite_ && (!not_finite_.defined() || ", "return finite_ || (!not_finite_.defined() || ", "test_train_gradient_tree MicroGradient.*"),
    Mutation("staged-piece-not-waited-for", "src/train/staged_copies.cpp", "const std::int64_t begin = (piece - 1) * kNumbers;", "const std::int64_t begin = std::max<std::int64_t>(piece - 2, 0) * kNumbers;", "test_train_gpu_optimizer"),
    Mutation("gpu-label-s-gradient-uncapped", "src/train/gpu_head_loss.cpp", "dense * loss_.cap_derivative(z)", "dense", "test_train_head_loss"),
    Mutation("gpu-products-with-rounded-sums", "src/train/gpu_products.cpp", "return at::mm(left_MK.to(at::kFloat), right_KN.to(at::kFloat)).to(to);", "return at::mm(left_MK, right_KN).to(to);", "test_train_fused_ops"),
    Mutation("stream-s-gradient-not-added", "src/train/gpu/norm_kernels.h", "if (other_RD != nullptr) load<kAtOnce>", "if (false) load<kAtOnce>", "test_train_gpu_kernels"),
    Mutation("gradients-turned-forward", "src/train/gpu_attention.cpp", "back ? -1.0f : 1.0f};", "1.0f};", "test_train_gpu_kernels"),
    Mutation("moments-of-the-first-rank-alone", "src/train/checkpoint.cpp", "keep_own(trainer->shards(), trainer->sharing().rank(), values", "keep_own(trainer->shards(), 0, values", "tests/end_to_end/train_test.py Train.test_ranks_threads_kills_and_stops_change_nothing"),
    Mutation("norm-by-ranks", "src/train/optimizer.cpp", "sum += all[next[static_cast<std::size_t>(rank)]++];", "sum += all[next[0]++];", "test_train_flat_shards"),
    Mutation("labels-not-shifted", "src/tasks/train/samples.cpp", "*labels = tokens[t + 1];", "*labels = tokens[t];", "tests/end_to_end/train_test.py Train.test_texts_against_torch"),
    Mutation("moments-not-restored", "src/train/checkpoint.cpp", "moment(&OptimizerState::square));\n  add_curves(tensors, curves);", "moment(&OptimizerState::mean));\n  add_curves(tensors, curves);", "tests/end_to_end/train_test.py Train.test_ranks_threads_kills_and_stops_change_nothing"),
    # Pairs of answers.
    Mutation("rejected-pushed-up", "src/train/preference_loss.cpp", "pair.rejected_gradient = -beta * slope;", "pair.rejected_gradient = beta * slope;", PAIRS + "test_losses_against_torch"),
    Mutation("ipo-of-sums", "src/train/preference_loss.cpp", "rejected.log_ratio / r - 1 / (2 * beta)", "rejected.log_ratio - 1 / (2 * beta)", PAIRS + "test_losses_against_torch"),
    Mutation("prompts-learnt", "src/tasks/train/preference_pairs.cpp", "marks.begin() + static_cast<std::ptrdiff_t>(prompt_length)", "marks.begin()", PAIRS + "test_losses_against_torch"),
    Mutation("references-exchanged", "src/tasks/train/samples.cpp", "pair.rejected_reference = references[2 * items[i] + 1];", "pair.rejected_reference = references[2 * items[i]];", PAIRS + "test_losses_against_torch"),
    Mutation("reference-after-the-steps", "src/tasks/train/run.cpp", "    if (!work_.open.begin_steps(inputs_)) return;\n", "    resume();\n    if (!work_.open.begin_steps(inputs_)) return;\n",
             PAIRS + "test_a_reference_that_was_changed_is_computed_anew"),
    Mutation("reference-not-checked", "src/tasks/train/objectives/dpo.cpp", "if (crcs[i] != crc_of(samples.begin + i, rows[i])) return std::nullopt;", "", PAIRS + "test_losses_against_torch"),
    Mutation("rewards-of-the-last-token", "src/tasks/train/samples.cpp", "classified_token(std::span(ids + begin, ids + end), pad_token_id)", "(end - begin - 1)", REWARDS + "test_against_torch"),
    Mutation("margin-left-out", "src/train/preference_loss.cpp", "chosen - rejected - margin, sum", "chosen - rejected, sum", REWARDS + "test_against_torch"),
    # GRPO.
    Mutation("better-texts-not-clipped", "src/train/policy_loss.cpp", "token.clipped ? 0 : -ratio * advantage", "-ratio * advantage", TEXTS + "test_losses_against_torch"),
    Mutation("temperature-of-texts-alone", "src/train/trainer.cpp", "config.logit_scale / options_.policy.temperature", "config.logit_scale", TEXTS + "test_losses_against_torch"),
    Mutation("population-deviation", "src/train/policy_loss.cpp", "static_cast<double>(values.size() - 1)", "static_cast<double>(values.size())", "test_train_policy_loss"),
    Mutation("texts-of-the-first-weights", "src/train/trainer_policy.cpp", "lora_ ? std::optional<LoraWeights>({*lora_, adapter_}) : std::nullopt);", "std::nullopt);", TEXTS + "test_an_adapter_and_its_reference"),
    Mutation("reference-with-the-adapter", "src/train/trainer_policy.cpp", "of_reference ? TrunkPass(", "of_reference && !lora_ ? TrunkPass(", TEXTS + "test_an_adapter_and_its_reference"),
    Mutation("gpu-s-reference-is-the-policy", "src/train/trainer_policy.cpp", "send(reference_.tensor(), model = at::Tensor());", "model = model_on_device_;", ON_GPU.replace("gpu_code", "train_gpu_code") + "test_policies"),
    Mutation("grade-of-the-neighbour", "src/tasks/judge/reward.cpp", "grades[i / each] +=", "grades[(i / each + 1) % texts.size()] +=", TEXTS + "test_a_judge_rewards"),
    Mutation("rewarding-judge-not-in-the-identity", "src/tasks/rollout/text_reward.cpp", ": judge_ ? judge_->identity(world, poll) : Attributes();", ": Attributes();", TEXTS + "test_a_judge_rewards"),
    Mutation("texts-by-rank", "src/tasks/train/grpo_texts.cpp", "seed_of(config_.batches.seed, step)", "seed_of(config_.batches.seed + texts.begin, step)", TEXTS + "test_ranks_threads_kills_and_stops_change_nothing"),
    Mutation("equal-rewards-rounded", "src/train/policy_loss.cpp", "return reward == group.front(); })) continue;", "return reward == group.front(); })) {}", "test_train_policy_loss"),
    Mutation("saved-between-iterations", "src/tasks/train/run.cpp", "if (at_border && curves_.step / every != saved_ / every) save();", "if (curves_.step / every != saved_ / every) save();",
             TEXTS + "test_ranks_threads_kills_and_stops_change_nothing"),
    # Scores.
    Mutation("padding-scored", "include/magister/tasks/score/classified_token.h", "static_cast<std::int64_t>(ids[static_cast<std::size_t>(place)]) == pad_token_id", "false",
             "tests/end_to_end/score_test.py Score.test_values_and_labels"),
    Mutation("head-of-the-vocabulary", "include/magister/model/partition.h", "IndexRange{0, static_cast<std::uint64_t>(config.head_outputs())}",
             "IndexRange{0, static_cast<std::uint64_t>(config.head_outputs() > 1 ? config.head_outputs() - 1 : 1)}", "tests/end_to_end/score_test.py Score.test_values_and_labels"),
    # Encoders.
    Mutation("encoder-reads-the-last-token", "src/tasks/score/classifier_logits.cpp", "config.encoder ? 0 : static_cast", "static_cast", ENCODERS + "test_values_labels_and_tokens"),
    Mutation("buckets-not-rounded-up", "src/model/cpu/encoder_model.cpp", "at::ceil(at::log(beyond", "at::floor(at::log(beyond", ENCODERS + "test_values_labels_and_tokens"),
    Mutation("distances-turned-round", "src/model/cpu/encoder_model.cpp", "(span - bucket_LL).clamp(", "(span + bucket_LL).clamp(", ENCODERS + "test_values_labels_and_tokens"),
    Mutation("token-types-left-out", "src/model/cpu/encoder_model.cpp", "if (weights_.types_XD.defined()) sum +=", "if (false) sum +=", ENCODERS + "test_values_labels_and_tokens"),
    Mutation("vectors-of-distances-not-normed", "src/model/cpu/encoder_model.cpp", "if (encoder.relative_norm)\n    out.relative_ND =", "if (encoder.relative_norm)",
             ENCODERS + "test_values_labels_and_tokens"),
    # The same in the GPU's code, within the tolerance of bf16 and fp8.
    Mutation("gpu-no-rope", GPU, "*row++ = static_cast<std::int32_t>(first + position);", "*row++ = static_cast<std::int32_t>(first);", ON_GPU + "test_bf16"),
    Mutation("gpu-q-zeroed", GPU, "  return multiply(layer.o_proj, pass, {attend(", "  qkv_TQ.narrow(1, 0, shape.heads * shape.head_dim).zero_();\n  return multiply(layer.o_proj, pass, {attend(",
             ON_GPU + "test_bf16"),
    Mutation("gpu-fp8-no-rope", GPU, "*row++ = static_cast<std::int32_t>(first + position);", "*row++ = static_cast<std::int32_t>(first);", ON_GPU + "test_fp8"),
    Mutation("gpu-fp8-q-zeroed", GPU, "  return multiply(layer.o_proj, pass, {attend(", "  qkv_TQ.narrow(1, 0, shape.heads * shape.head_dim).zero_();\n  return multiply(layer.o_proj, pass, {attend(",
             ON_GPU + "test_fp8"),
    Mutation("gpu-shard-sum-left-out", GPU, "if (group_.tp_size() > 1) group_.begin_all_reduce_sum(pass.delta_TD);", "", ON_GPU + "test_shards"),
    Mutation("plan-of-a-gpu-with-a-cpu-s-passes", "src/run/config_plan.cpp", "on_gpus ? kGpuPassLimits : PassLimits{};", "PassLimits{};",
             "tests/app/plan_shapes_test.py PlanShapes.test_smallest_group"),
    Mutation("groups-for-the-model-alone", "src/runtime/memory_plan.cpp", "for (const GroupModel& model : models) {\n    const auto weights", "for (const GroupModel& model : {models.front()}) {\n    const auto weights",
             "tests/app/plan_shapes_test.py PlanShapes.test_a_model_beside"),
    Mutation("decoding-of-the-generator", "src/engine/generator.cpp", "if (!request.decoding) request.decoding = parts_->usual;", "request.decoding = parts_->usual;",
             "test_engine_decoding OnACpu.EachRequestHasItsOwn"),
    Mutation("cancelled-text-is-waited-for", "src/engine/scheduler.cpp", "taken->prompt && --taken->prompt->waiting == 0", "false", "test_engine_decoding On*.TextsOfItsPromptGoOn"),
    Mutation("ahead-draws-the-same-again", "src/engine/generator.cpp", "begin_drawing(texts, logits_RV, 1);", "begin_drawing(texts, logits_RV, 0);", "test_engine_generator_on_gpu GeneratingOnAGpu.PassesAhead*"),
    Mutation("ahead-without-the-drawn-ids", "src/model/gpu/gpu_decoder.cpp", "if (drawn_ids_R.defined()) places", "if (false) places", "test_engine_generator_on_gpu GeneratingOnAGpu.PassesAhead*"),
    Mutation("product-does-not-wait", "src/model/gpu/product_kernels.h", "t.wait_for_earlier();", "", "test_model_gpu_product All/Products.*"),
    Mutation("wide-product-of-one-chain", "src/model/gpu/wide_product_kernel.h", "if (now.chain != chain) add_chain(sums, totals);", "if (i + 1 == num_steps) add_chain(sums, totals);", "test_model_gpu_product All/Products.*"),
    Mutation("wide-product-one-copy-short", "src/model/gpu/wide_product_kernel.h", "t.template wait_for_copies<kStages - 2>();", "t.template wait_for_copies<kStages - 1>();", "test_model_gpu_product All/Products.*"),
    Mutation("graph-without-its-sum", "src/model/gpu/gpu_decoder.cpp", "if (part + 1 < places.graphs.size()) group_.all_reduce_sum(", "if (part > 0 && part + 1 < places.graphs.size()) group_.all_reduce_sum(", "test_model_gpu_shards GpuShards.GraphsHaveEqualBits"),
    Mutation("plan-without-decoding-inputs", "src/model/gpu/decoder_places.cpp", "most_rows * row + inputs", "most_rows * row", "test_model_gpu_memory PlannedMemory.*"),
    Mutation("wanted-sum-of-the-last-shard", "src/engine/wanted_rows.cpp", "sum += numbers[1] * std::exp(numbers[0] - top);", "sum = numbers[1] * std::exp(numbers[0] - top);", "test_engine_wanted_rows All/WantedRows.*"),
    Mutation("wanted-of-another-shard-s-column", "src/engine/gpu/wanted_kernel.h", "ids_N[i] - vocab_begin", "ids_N[i]", "test_engine_wanted_rows All/WantedRows.*"),
    Mutation("peers-not-waited-for", PEERS, "if (is_peer(t) && !wait_for(t, t.thread(), turn->number)) {", "if (false) {", "test_parallel_peer_sums"),
    Mutation("peers-own-numbers-first", PEERS, "shard == own ? mine : t.load_16_now(received + layout.numbers(half, t.block_x(), shard) + 4 * t.thread());",
             "shard == 0 ? mine : t.load_16_now(received + layout.numbers(half, t.block_x(), shard <= own ? shard - 1 : shard) + 4 * t.thread());", "test_parallel_peer_sums"),
    Mutation("peers-one-half-of-the-memory", PEERS, "const std::int64_t half = turn->number % 2;", "const std::int64_t half = 0;", "test_parallel_peer_sums"),
    Mutation("peers-wait-for-those-who-left", PEERS, "if (left || t.nanoseconds() - begin > patience)", "if (t.nanoseconds() - begin > patience)", "test_parallel_peer_sums"),
    Mutation("peers-sum-that-was-given-up", PEERS, "store(first, turn->gave_up != 0 ? nothing() : sum(t, half, mine));", "store(first, sum(t, half, mine));", "test_parallel_peer_sums"),
    Mutation("peers-wrong-sums-taken", "src/parallel/peer_sums.cpp", "if (std::memcmp(found.data(), sums.data(), bytes) != 0) wrong = count;", "", "test_parallel_peer_devices"),
    Mutation("peers-memory-freed-under-others", "src/parallel/peer_sums.cpp", "if (!exported || may_free) return;", "return;", "test_parallel_peer_devices"),
    Mutation("graph-without-its-sums", "src/model/gpu/gpu_decoder.cpp", "peer_sums_->queue_sum(data<float>(partial), partial.numel(), queue);", "", "test_model_gpu_shards"),
    Mutation("gpu-sums-of-shards-in-bf16", "src/model/gpu/gpu_weights.cpp", "weights.float_sums = group.tp_size() > 1 && group.backend() != \"nccl, fast\";", "", "test_model_gpu_shards"),
    Mutation("gpu-f32-delta-rounded", "src/model/gpu/elementwise_kernels.h", "for (int i = 0; i < kAtOnce; ++i) values[i] += delta[i];", "for (int i = 0; i < kAtOnce; ++i) values[i] += to_float(to_bf16(delta[i]));", "test_model_gpu_elementwise FloatDelta.*"),
    Mutation("fixed-product-whatever-its-bits", "src/model/gpu/fixed_product.cpp", "return bits.defined() && at::equal(bits, wanted.narrow(0, 0, bits.size(0)));", "return bits.defined();", "test_model_fixed_product"),
    Mutation("fixed-product-whatever-the-place", "src/model/gpu/fixed_product.cpp", "return rows_repeat(out_MN, B) ? ", "return rows > 0 ? ", "test_model_fixed_product"),
    Mutation("fixed-product-at-few-places", "src/model/gpu/fixed_product.h", "kTriedBlock = 61", "kTriedBlock = 64", "test_model_fixed_product"),
    Mutation("throughput-in-graphs-of-before", "src/model/gpu/gpu_decoder.cpp", "places_.clear();", "", "test_model_decode_products"),
    Mutation("throughput-without-bias", "src/model/gpu/decode_products.cpp", "if (bias_N.defined()) out.add_(bias_N);", "", "test_model_decode_products"),
    Mutation("a-librarys-product-unseen", "src/model/gpu/fixed_product.cpp", "const WatchedLaunch watched(", "if (M < 0) WatchedLaunch(", "test_model_fixed_product"),
    Mutation("no-candidate-is-one", "src/engine/gpu_candidates.cpp", "if (id_of(best[i]) < 0) break;", "", "test_engine_gpu_candidates"),
    Mutation("fixed-product-that-is-none", "src/model/gpu/fixed_product.cpp", "if (!(apart.item<double>() <= kNear * largest.item<double>())) return false;", "(void)largest;", "test_model_fixed_product"),
    Mutation("fixed-product-tried-for-short-passes", "src/model/gpu/fixed_product.h", "2048, 4096, 8192, 16384}", "2048, 4096, 4096, 4096}", "test_model_fixed_product"),
    Mutation("gpu-sort-of-a-whole-tile", "src/engine/logit_reducer_gpu.cpp", "kSortedRows = 16;", "kSortedRows = 1024;", "test_engine_logit_reducer GpuHead.*"),
    Mutation("head-tiles-of-480-rows", "src/train/head_loss.cpp", "rows >= 10 * kTileRows ? kTileRows : 16;", "rows >= 10 * kTileRows ? 480 : 16;", "test_train_head_loss HeadLoss.TheProcess*"),
    Mutation("a-guided-row-drawn-on-the-device", "src/engine/row_sampler.cpp", "!(reads_guided_rows_ && sequence.request.guided) &&", "true &&", "test_engine_guide"),
    Mutation("a-candidate-s-page-not-copied-on-a-gpu", "src/engine/value_guide.cpp", "if (model_.queue() != nullptr) return cache_.copy_pages(from, to);", "if (model_.queue() != nullptr) return;", "test_engine_guide"),
    Mutation("second-half-of-a-value-pass-at-the-first-s-place", "src/engine/value_guide.cpp", "second.past += half;", "second.past += 0;", "tests/end_to_end/guided_test.py Guided.test_on_a_gpus_code"),
    Mutation("groups-of-a-rank-load-a-copy-each", "src/model/weight_store.cpp", "= loading_.try_emplace(name);", "= std::pair(loading_.try_emplace(name).first, true);", "test_model_weight_store"),
    Mutation("a-largest-unit-that-is-the-first", "src/io/results/columns.cpp", "most = std::max(most, end - begin);", "most = most > 0 ? most : end - begin;", "test_io_results_units"),
    Mutation("parts-of-a-gradient-twice", "src/train/micro_gradient.cpp", "    if (part++ < parts_put_[parameter]) return;\n", "", "test_train_gradient_tree"),
    Mutation("a-shard-looks-at-its-heads-alone", "src/model/gpu/gpu_decoder.cpp", "works_ = kernels_take(weights.config, group.tp_size(), weights.dtype);", "works_ = weights.dtype == at::kBFloat16 && groups_are_even(weights.layers.front().shape);", "tests/end_to_end/gpu_code_test.py GpusOfARank.test_shards_of_unlike_heads"),
    Mutation("a-shard-decides-alone", "src/model/pass_memory.cpp", "group.least_number(!refused && fits_here(asked) ? 1 : 0) == 0", "(group.least_number(1), !refused && fits_here(asked) ? 1 : 0) == 0", "test_model_pass_memory"),
    Mutation("a-pass-without-memory-is-begun", "src/model/pass_memory.cpp", "? 1 : 0) == 0) continue;", "? 1 : 0) < 0) continue;", "test_model_pass_memory"),
    Mutation("a-size-without-own-bits", "src/model/gpu/gpu_linear.cpp", "if (rows.defined() && size >= wanted) bits = rows;", "if (size == wanted) bits = rows;", "test_model_gpu_linear"),
    Mutation("sizes-agreed-on-one-by-one", "src/model/pass_memory.cpp", "if (asked == all) known_ = all;", "known_ = known_.with(asked);", "test_model_pass_memory"),
    Mutation("a-question-before-every-token", "src/model/pass_memory.cpp", "(all.sequence_tokens + kTokensAhead - 1) / kTokensAhead * kTokensAhead", "all.sequence_tokens", "test_model_pass_memory"),
    Mutation("plain-products-not-asked-for", "src/model/gpu/gpu_weights.cpp", "return one->is_quantized(); });", "return one == nullptr; });", "test_model_pass_memory"),
    Mutation("sums-in-kernels-not-planned", "src/runtime/memory_plan.cpp", "has_kernels && sums > 0", "has_kernels && sums < 0", "test_runtime_memory_plan"),
    Mutation("gpu-fp8-decoding-in-two-passes", "src/model/gpu/gpu_decoder.cpp", "if (!next.fp8_NK.defined() || weights_.config.norm_kind == NormKind::kLayer) return {places.normed_RD};", "return {places.normed_RD};", "test_model_gpu_memory PlannedMemory.DecodingTakesWhatIsPlanned"),
    Mutation("gpu-experts-first-of-eight", "src/model/gpu/expert_kernels.h", "sums[j] += weights_Tk[first + i] * row[j];", "sums[j] += weights_Tk[first + i] * row[0];", "test_model_gpu_experts"),
    # Logits to numbers.
    Mutation("rows-shifted-by-one", "src/tasks/teacher_logits/worker.cpp", "ReducedLogits logits = reducer_->finish(part.logits);",
             "ReducedLogits logits = reducer_->finish(part.logits);\n        logits.top_id_Tk = logits.top_id_Tk.roll(1, 0);\n        logits.top_logprob_Tk = logits.top_logprob_Tk.roll(1, 0);",
             "tests/end_to_end/parity_test.py Parity.test_tiny_model"),
    Mutation("entropy-without-shift", "src/engine/logit_reducer.cpp", "factor * (number(share, 2) + shift * number(share, 1))", "factor * number(share, 2)", "test_engine_logit_reducer"),
    Mutation("tail-mass-of-k-minus-one", "src/engine/logit_reducer.cpp", "    if (i < found) mass +=", "    if (i + 1 < found) mass +=", "test_engine_logit_reducer"),
    Mutation("nan-check-removed", TEACHER_ROWS, "|| !std::isfinite(entropy[t])", "", "test_tasks_teacher_columns"),
    # Sampling.
    Mutation("top-k-off-by-one", SAMPLER, "ids.resize(static_cast<std::size_t>(top_k));", "ids.resize(static_cast<std::size_t>(top_k) + 1);", "test_engine_sampler Sampling.*"),
    Mutation("temperature-ignored", SAMPLER, "static_cast<float>(logit / params.temperature)", "static_cast<float>(logit)", "test_engine_sampler Sampling.*"),
    Mutation("penalty-reversed", "src/engine/logits_processor.cpp", "logit > 0 ? logit / penalty_", "logit < 0 ? logit / penalty_", "test_engine_sampler Sampling.*"),
    Mutation("draw-forgets-the-record", SAMPLER, "{key.record, key.sample, key.position}", "{key.sample, key.position}", "test_engine_sampler KeyedUniform.*"),
    Mutation("ties-to-the-last", SAMPLER, "for (; place > 0 && is_lower(logit(best[place - 1]), logits_V[i]); --place)", "for (; place > 0 && !is_lower(logits_V[i], logit(best[place - 1])); --place)", "test_engine_sampler MostProbable.*"),
    Mutation("stop-text-kept", "src/runtime/stop_rules.cpp", "end = std::min(end, text.find(stop));", "end = std::min(end, text.find(stop) + stop.size());", "tests/end_to_end/generate_test.py Generate.test_stop_texts_and_tokens"),
    # Text.
    Mutation("bos-dropped", "src/text/tokenizer.cpp", "if (options.add_special_tokens) ids.insert(ids.end(), model.prefix", "if (false) ids.insert(ids.end(), model.prefix", "tests/text/oracle_test.py"),
    Mutation("merge-ties-to-the-right", "src/text/merge_table.cpp", "rank > other.rank : place > other.place", "rank > other.rank : place < other.place", "tests/text/families_test.py"),
    Mutation("unknown-not-fused", "src/text/bpe.cpp", "if (waiting && !rules_.fuse_unknown)", "if (waiting)", "tests/text/families_test.py"),
    Mutation("unigram-last-of-equals", "src/text/unigram.cpp", "end.token == kNone || score > end.score", "end.token == kNone || score >= end.score + 1e-3", "tests/text/families_test.py"),
    Mutation("visible-space-not-escaped", "src/text/tokenizer_gguf.cpp", 'steps.push_back(make_replace(" ", kVisibleSpace));', "", "tests/runtime/gguf_vocab_test.py"),
    Mutation("chat-template-ignored", "src/runtime/record_prompt.cpp", "  if (chat_) {\n", "  if (chat_ && prompt.user.empty()) {\n", "tests/end_to_end/judge_test.py Judge.test_prompts_are_the_template_s"),
    # Summaries.
    Mutation("labels-swapped", "src/tasks/judge/report.cpp", "row.swapped ? 1 - label : label", "row.swapped ? label : 1 - label", SUMMARIES + "test_every_mode"),
    Mutation("low-mass-counted", SUMMARY, "  if (row.parse != 0) return;\n  ++counts_", "  if (row.verdict < 0) return;\n  ++counts_",
             SUMMARIES + "test_rows_of_low_mass_are_in_no_share"),
    Mutation("interval-of-90-percent", "include/magister/core/wilson.h", "kZ = 1.959963984540054", "kZ = 1.644853626951473", "tests/tasks/judge_summary_test.py"),
    Mutation("answers-of-the-neighbour", "src/tasks/judge/prompts.cpp", 'fields["answer"] = answers[i];\n    for (const Prompt&', 'fields["answer"] = answers[0];\n    for (const Prompt&', SUMMARIES + "test_written_texts_are_judged_each_in_its_prompt"),
    # Verifiers and evaluations.
    Mutation("degrees-stay", ANSWER, '{"^\\\\circ", ""}', '{"^\\\\circ", "o"}', "tests/text/verifier_test.py"),
    Mutation("first-box", ANSWER, "text.rfind(kBoxed)", "text.find(kBoxed)", "tests/text/verifier_test.py"),
    Mutation("python-raises-unseen", ANSWER, "  if (!is_python_int(parts[0]) || !is_python_int(parts[1])) return std::nullopt;\n", "", "tests/text/verifier_test.py"),
    Mutation("dots-stay", ANSWER, "if (end > 0 && out[end - 1] == '.') out.erase(end - 1, 1);", "", "tests/text/verifier_test.py"),
    Mutation("pass-with-replacement", ESTIMATORS, "1 - static_cast<double>(k) / static_cast<double>(i)", "static_cast<double>(n - c) / static_cast<double>(n)", EVALUATED),
    Mutation("ties-win", ESTIMATORS, "share ? rest / votes + 1 : 1", "rest / votes + 1", EVALUATED),
    Mutation("silent-texts-left-out", ESTIMATORS, "of_silent[rest - chosen]", "(rest == chosen ? 1 : 0)", EVALUATED),
    # Files.
    Mutation("flag-before-rows", "src/run/unit_writer.cpp", "  for (const ColumnBytes& column : rows.columns) {",
             "  file_.commit(rows.unit);\n  for (const ColumnBytes& column : rows.columns) {", "tests/end_to_end/stops_test.py Stops.test_a_flagged_unit_is_whole"),
    Mutation("flag-before-checksum", "src/io/results/results_file.cpp", '  fail_point("results.commit.rows_written");\n',
             '  for (const std::uint8_t one = 1; const Unit& unit : units) write("/commit/done", unit.index, std::as_bytes(std::span(&one, 1)));\n  fail_point("results.commit.rows_written");\n',
             "tests/end_to_end/stops_test.py Stops.test_a_flagged_unit_is_whole"),
    Mutation("layout-not-checked", "src/io/results/structure.cpp", "if (layout == nullptr || *layout != AttributeValue(layout_sha256(columns.all())))", "if (layout == nullptr)", "test_io_results_file_refused"),
    Mutation("resume-of-another-experiment", "src/io/results/results_file.cpp", "    check_attributes(path, expected, task_key);\n    columns->at", "    columns->at",
             "tests/end_to_end/stops_test.py Stops.test_another_experiment_does_not_touch_the_partial_file"),
    Mutation("changed-units-stay-done", "src/io/results/unit_checks.cpp", "        changed.push_back(unit);\n", "", "test_io_results_units"),
    Mutation("changed-tokens-are-read", "src/io/results/unit_checks.cpp", "if (columns.find(kInputChecksums) != nullptr) require_inputs(columns, batch);", "", "test_io_results_units"),
    Mutation("changed-tokens-of-a-done-unit", "src/io/results/unit_checks.cpp", "        require_inputs(columns, {unit, unit + 1});\n", "", "test_io_results_units"),
    Mutation("texts-are-read-unchecked", "src/tasks/generate/generated_texts.cpp", "std::string GeneratedTexts::text(std::uint64_t i) const {\n  columns_->units->require(i);\n", "std::string GeneratedTexts::text(std::uint64_t i) const {\n",
             "tests/end_to_end/damaged_results_test.py Complete.test_score_and_judge_refuse_texts"),
    Mutation("scores-are-read-unchecked", "src/tasks/evaluate/task.cpp", "    methods_.back().check(inputs_.context.world);\n", "", "tests/end_to_end/damaged_results_test.py Complete.test_evaluate_refuses_scores"),
    # Data sets.
    Mutation("quoted-line-end-cuts-a-row", "src/io/dataset/record_rule.cpp", "quoted_ = c != '\"';", "quoted_ = c != '\"' && c != '\\n';",
             "tests/io/dataset_formats_test.py Csv.test_against_python"),
    Mutation("row-of-the-batch-before", "src/io/dataset/parquet_arrow.cpp", "rows_left_.start(batch, skip);", "rows_left_.start(batch, 0);", "tests/io/dataset_tables_test.py Parquet.test_against_pyarrow"),
    Mutation("cut-off-gzip-read", "src/io/dataset/byte_stream.cpp", "if (inside_ || !any_) fail_damaged(file_, \"gzip\"", "if (!any_) fail_damaged(file_, \"gzip\"", "tests/io/dataset_formats_test.py Compressed.test_damaged"),
    Mutation("shards-not-counted", "src/io/dataset/dataset_folder.cpp", "count == names.size() && index == i", "index <= i + count", "tests/io/dataset_formats_test.py Folders.test_splits"),
    Mutation("several-configurations-mixed", "src/io/dataset/dataset_folder.cpp", "found.places.size() == 1", "!found.places.empty()", "tests/io/dataset_formats_test.py Folders.test_configurations_are_asked_for"),
    Mutation("late-candidates-out-of-order", "src/text/merge_table.cpp", "rank.late.top().place < rank.in_order[rank.next].place", "rank.late.top().place > rank.in_order[rank.next].place", "test_text_tokenizer"),
    Mutation("files-of-a-split-unordered", "src/io/dataset/hub_layout.cpp", "static_cast<int>(word) * 4 + form.value_or(0)", "0", "tests/io/dataset_formats_test.py Folders.test_of_the_hub"),
    Mutation("readme-of-a-data-set-unread", "src/io/dataset/dataset_folder.cpp", "if (!configs.empty()) return listed_files", "if (configs.size() > 9) return listed_files", "tests/io/dataset_formats_test.py Folders.test_of_the_hub"),
    # Ranks.
    # Groups of several sizes.
    Mutation("any-size-takes-any-unit", "src/parallel/group_shares.cpp", "if (size_of(next) == size) flags", "if (size >= 1) flags", "test_parallel_group_shares"),
    Mutation("shares-of-a-round-in-blocks", "src/parallel/group_shares.cpp", "lag[next] -= all;", "lag[next] -= 1;", "test_parallel_group_shares"),
    Mutation("one-counter-for-all-sizes", "src/parallel/unit_tickets.cpp", "kNextTicket + queue), 1)", "kNextTicket + 0 * queue), 1)", "test_parallel_unit_tickets"),
    Mutation("few-records-to-the-first-group", "src/run/generator_shard.cpp", "units_held_ == 0 || units_held_ < most", "true", "tests/end_to_end/shares_test.py Shares.test_every_group_has_its_part"),
    Mutation("static-among-groups-of-all-sizes", "src/parallel/unit_tickets.cpp", "of_size ? of_size->count : num_groups", "num_groups", "test_parallel_unit_tickets"),
    Mutation("units-of-a-size-by-their-place-among-those-left", "src/parallel/group_shares.cpp", "if (size_of(next) == size) flags[next - first] = 0;", "{ static std::uint64_t place = 0; if (size_of(place++) == size) flags[next - first] = 0; }", MIXED + "test_kills_and_other_numbers_of_groups"),
    Mutation("small-groups-on-small-gpus", "src/parallel/layout_mixed.cpp", "      if (of(rank).free_bytes < needed) continue;\n", "", "test_parallel_layout_solver MixedLayout.*"),
    Mutation("devices-left-over", "src/parallel/layout_mixed.cpp", " || !cell.fills[cell.free.size() - wanted]", "", "test_parallel_layout_solver MixedLayout.*"),
    Mutation("shares-not-in-the-identity", "src/run/task_life.cpp", ' {"tp_shares", shares_.shares()},', "", MIXED + "test_identity_tells_shares_and_spellings"),
    Mutation("sizes-in-the-order-written", "src/experiment/layout_section.cpp", 'node.resolve_as("gpus_per_group", in_order);', "", MIXED + "test_identity_tells_shares_and_spellings"),
    Mutation("merged-units-are-a-run-s", "src/io/results/slices.cpp", '&& name != kFirstUnits) return', ') return', MIXED + "test_merged_slices"),
    Mutation("a-ticket-twice", "src/parallel/unit_tickets.cpp", "units.push_back(window.pending[ticket]);", "units.push_back(window.pending[ticket / 2]);", "test_parallel_unit_tickets"),
    Mutation("all-that-is-left-at-once", "src/parallel/unit_tickets.cpp", "(count - ticket) / (2 * static_cast<std::uint64_t>(window.groups_of_queue))", "count - ticket", "test_parallel_unit_tickets"),
    Mutation("waiting-has-no-patience", "src/parallel/watchdog.cpp", "if (before && last_sign == before) return true;", "if (before) return true;", "test_parallel_watchdog"),
    # Several units in a pass, and attention by cuDNN.
    Mutation("window-left-out-among-short-texts", "src/model/gpu/gpu_attention.cpp", "std::max(run.longest_keys, shape.sliding_window)", "run.longest_keys", "test_model_flash_attention"),
    Mutation("a-text-without-tokens-capped", "src/model/gpu/gpu_attention.cpp", "if (q.size(0) == 0) return at::empty_like(q);", "", "test_model_flash_attention"),
    Mutation("no-sign-of-life-between-units", "src/tasks/teacher_logits/worker.cpp", 'watch("write", static_cast<std::int64_t>(one.unit.index));', "", ON_GPU + "test_writing_many_units_is_a_sign_of_life"),
    Mutation("units-counted-whatever-they-hold", "src/parallel/unit_tickets.cpp", "if (is_last(units.back())) break;", "", "test_parallel_unit_tickets"),
    Mutation("long-units-pile-up", "src/run/shard_model.cpp", "claimed += base_.file.unit(unit).rows.size();", "claimed += 1;", ON_GPU + "test_units_of_long_texts_do_not_pile_up"),
    Mutation("lengths-are-kept", "src/run/sample_plan.cpp", "for_each_length([&](std::uint64_t, std::uint32_t length) { packer.add(length); });",
             "std::vector<std::uint64_t> kept; for_each_length([&](std::uint64_t, std::uint32_t length) { kept.push_back(length), packer.add(length); });",
             "tests/end_to_end/memory_growth_test.py Memory.test_planning"),
    Mutation("any-mode-in-a-panel", "src/tasks/judge/task.cpp", "MAGISTER_CHECK(verdicts == verdict_names(setup_.classes)", "MAGISTER_CHECK(!verdicts.empty()", "tests/end_to_end/needs_bad_input_test.py"),
    Mutation("rows-of-a-pass-s-first-unit", "src/tasks/teacher_logits/worker.cpp", "      first += count;\n", "", ON_GPU + "test_several_units_in_a_pass"),
    Mutation("scores-of-a-pass-s-first-unit", "src/tasks/score/worker.cpp", "      first += count;\n", "", "tests/end_to_end/score_test.py Score.test_gpu_code_in_halves"),
    Mutation("cudnn-tried-alone", "src/model/gpu/cudnn_attention.cpp", "!at::equal(rows_of(among_TQ, {kBefore, length, kAfter}, 1, shape, true, queue), wanted)", "among_TQ.numel() == 0", "test_model_cudnn_attention"),
    Mutation("cudnn-for-windows", "src/model/gpu/cudnn_attention.cpp", " && shape.sliding_window == 0", "", "test_model_cudnn_attention"),
    Mutation("cudnn-beside-shared-beginnings", "src/model/gpu/gpu_backend.h", "!model_.has_cudnn_attention() &&", "", "test_model_cudnn_attention"),
    Mutation("cudnn-with-more-tokens-behind", "src/model/gpu/cudnn_attention.cpp", "if (filled == L) return x.transpose(0, 1).unsqueeze(0);", "if (L > 0) return x.transpose(0, 1).unsqueeze(0);", "test_model_cudnn_attention"),
    Mutation("a-request-s-seed-is-ignored", "src/tasks/generate/worker.cpp", "(kind.settings.sampling, requests.seed(index), stop())", "(kind.settings.sampling, setup_.config.seed, stop())", "tests/end_to_end/openai_batch_test.py OpenaiBatch.test_keys_are_obeyed_by_record"),
    Mutation("a-range-beyond-the-end-is-sent", "src/serve/sent_file.cpp", "return range.first >= size ||", "return range.first > size ||", "tests/end_to_end/serve_paths_test.py ServePaths.test_results_by_range"),
]


def sh(command, log, **options):
    """-> exit status; the output goes to the log."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(map(str, command))}\n")
        file.flush()
        return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, **options).returncode


def copy_tree():
    """Tracked and new files as they are now; what is gone there goes here. What is the same keeps its time, so that it is not compiled again."""
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True).stdout
    names = [name for name in files.decode().split("\0") if name and (ROOT / name).exists()]
    TREE.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.exists() or not filecmp.cmp(source, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            os.utime(target)
    kept = set(names)
    for folder in [entry for entry in TREE.iterdir() if entry.is_dir() and entry.name not in ("build", ".deps")]:
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            if str(path.relative_to(TREE)) not in kept and "__pycache__" not in path.parts:
                path.unlink()
    if not (TREE / ".deps").exists():
        (TREE / ".deps").symlink_to(ROOT / ".deps")


def configure():
    return sh(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMAGISTER_TESTS=ON",
               "-DMAGISTER_UNITY=OFF"], WORK / "configure.log")


def build(targets, log):
    return sh(["ninja", "-C", BUILD, *targets], log)


def targets_of(test):
    """A Python test of a module may start that module's small program."""
    words = test.split()
    if not words[0].endswith(".py"):
        return [words[0]]
    probes = {"model": ["families_probe", "own_family_probe", "model_probe"], "io": ["io_probe", "results_probe", "nfs_client"], "text": ["text_probe", "chat_probe"], "tasks": ["judge_summary_probe", "teacher_rows_probe"],
              "train": ["train_probe"]}
    return ["magister", *probes.get(pathlib.PurePath(words[0]).parts[1], [])]


def run_test(test, log):
    words = test.split()
    environment = {**os.environ, "MAGISTER": str(BUILD / "magister"), "MAGISTER_SOURCE_DIR": str(TREE), "MAGISTER_BUILD_DIR": str(BUILD),
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if words[0].endswith(".py"):
        command = [PYTHON, TREE / words[0], *words[1:]]
    else:
        found = next(path for path in BUILD.glob(f"tests/*/{words[0]}"))
        command = [found, *(["--gtest_filter=" + ":".join(words[1:])] if words[1:] else [])]
        if words[0].startswith(("test_parallel", "test_io_results_file", "test_io_results_units", "test_train_flat_shards", "test_train_gradient_tree")):
            command = ["mpirun", "--oversubscribe", "-np", "2", *command, "--mpi"]
    return sh(["timeout", "600", *command], log, cwd=WORK, env=environment)


def try_mutation(mutation):
    """-> what came of it: noticed, NOT NOTICED, or why it could not be tried."""
    path, log = TREE / mutation.file, WORK / f"{mutation.name}.log"
    log.unlink(missing_ok=True)
    original = path.read_text(encoding="utf-8")
    if original.count(mutation.search) != 1:
        return f"STALE (its text occurs {original.count(mutation.search)} times in {mutation.file})"
    try:
        path.write_text(original.replace(mutation.search, mutation.replace), encoding="utf-8")
        if build(targets_of(mutation.test), log) != 0:
            return f"DOES NOT COMPILE ({log})"
        return "noticed" if run_test(mutation.test, log) not in (0, 77) else f"NOT NOTICED ({log})"
    finally:
        path.write_text(original, encoding="utf-8")


def check_unchanged(mutations):
    """-> the tests that fail without any mutation."""
    log = WORK / "unchanged.log"
    log.unlink(missing_ok=True)
    tests = sorted({mutation.test for mutation in mutations})
    targets = sorted({target for test in tests for target in targets_of(test)})
    if build(targets, log) != 0:
        raise SystemExit(f"the unchanged sources do not build; see {log}")
    return [test for test in tests if run_test(test, log) != 0]


def names_no_test(test):
    """-> whether a C++ test's filter chooses nothing: such a run passes, whatever the code does."""
    target, *filters = test.split()
    source = next((path for path in ROOT.glob("tests/*/*_test.cpp") if target == f"test_{path.parent.name}_{path.stem.removesuffix('_test')}"), None)
    if source is None:
        return not target.endswith(".py") or not (ROOT / target).exists()
    names = [f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", source.read_text(encoding="utf-8"))]
    return any(not fnmatch.filter([*names, *(f"All/{name}/0" for name in names)], word) for word in filters)


def stale(mutations):
    """-> those whose text does not occur once in their file as it is now, or whose test is none."""
    found = [f"{mutation.name}: its text occurs {count} times in {mutation.file}" for mutation in mutations
             if (count := (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.search)) != 1]
    return found + [f"{mutation.name}: there is no {mutation.test}" for mutation in mutations if names_no_test(mutation.test)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[mutation.name for mutation in MUTATIONS])
    parser.add_argument("--list", action="store_true", help="names and tests, nothing else")
    parser.add_argument("--check", action="store_true", help="only whether every mutation still finds its place; part of CI")
    parser.add_argument("--markdown", action="store_true", help="the table as tests/README.md has it")
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if not arguments.only or mutation.name in arguments.only]
    if arguments.list:
        print("\n".join(f"{mutation.name:28} {mutation.file:36} {mutation.test}" for mutation in chosen))
        return 0
    if arguments.check:
        print("\n".join(found := stale(chosen)))
        return 1 if found else 0
    copy_tree()
    if configure() != 0:
        raise SystemExit(f"the copy cannot be configured; see {WORK / 'configure.log'}")
    failing = check_unchanged(chosen)
    for test in failing:
        print(f"fails without a mutation: {test}", flush=True)
    rows = []
    for mutation in chosen:
        begin = time.monotonic()
        outcome = "NOT TRIED (its test fails without it)" if mutation.test in failing else try_mutation(mutation)
        rows.append((mutation.name, mutation.test, outcome))
        print(f"{mutation.name:28} {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    if arguments.markdown:
        print("| fault put in | test that must fail | outcome |\n|---|---|---|")
        print("\n".join(f"| {name} | `{test}` | {outcome.split(' (')[0]} |" for name, test, outcome in rows))
    noticed = sum(outcome == "noticed" for _, _, outcome in rows)
    print(f"{noticed} of {len(rows)} noticed")
    return 0 if noticed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
