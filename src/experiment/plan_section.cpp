// Reads cards by name or by bytes: one (plan.device_memory), or counted per host (plan.devices).
#include "experiment/plan_section.h"

#include <cctype>
#include <charconv>
#include <optional>

#include "magister/device/gpu.h"
#include "magister/parallel/gpu_cards.h"

namespace magister {
namespace {

constexpr int kMostPlanned = 16384;  // most GPUs, all hosts together
constexpr const char* kSizeForm = "[0-9.]+ ?[MGT]i?B";

std::string card_names(const char* between) {
  std::string names;
  for (const GpuCard& card : gpu_cards()) names += fmt::format("{}{}", names.empty() ? "" : between, card.name);
  return names;
}

// Keeps only letters and digits, in lower case: "RTX 4090" and "rtx-4090" become "rtx4090".
std::string plain_letters(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) out += static_cast<char>(std::tolower(letter));
  }
  return out;
}

// The known cards that match a text such as "8 x a100", "NVIDIA A100-SXM4" or "4090", as a list: "A100-40GB or
// A100-80GB"; empty: no card matches.
std::string cards_like(std::string_view text) {
  text = text.substr(0, text.find('+'));
  const std::size_t first = text.find_first_not_of("0123456789 ");
  if (first != std::string_view::npos && first > 0 && text[first] == 'x') return cards_like(text.substr(first + 1));
  std::string wanted = plain_letters(text);
  for (const std::string_view maker : {"nvidia", "tesla", "geforce", "quadro"}) {
    if (wanted.starts_with(maker)) wanted.erase(0, maker.size());
  }
  if (wanted.size() < 2) return "";
  // The best match wins: the whole name, its beginning, a part of it, or the name's series at the beginning of the
  // text.
  std::string best;
  int most = 0;
  for (const GpuCard& card : gpu_cards()) {
    const std::string name = plain_letters(card.name), series = plain_letters(card.name.substr(0, card.name.find('-')));
    const int fits = name == wanted                                                ? 1000
                     : name.starts_with(wanted)                                    ? 999
                     : wanted.size() > 2 && name.find(wanted) != std::string::npos ? 998
                     : series != "rtx" && wanted.starts_with(series)               ? static_cast<int>(series.size())
                                                                                   : 0;
    if (fits == 0 || fits < most) continue;
    best = fits > most ? std::string(card.name) : fmt::format("{} or {}", best, card.name);
    most = fits;
  }
  return best;
}

std::string meant_cards(std::string_view text) {
  const std::string cards = cards_like(text);
  return cards.empty() ? "" : fmt::format("did you mean {}? else ", cards);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<GpuDevice> read_device(std::string_view text) {
  if (const GpuCard* const card = find_gpu_card(text)) return planned_gpu(card->name, card->bytes());
  const std::optional<std::uint64_t> bytes = parse_bytes(std::string(text));
  return bytes ? std::optional(planned_gpu("", *bytes)) : std::nullopt;
}

// Reads "8 x H100-80GB", a host of eight, or "4 x 8 x H100-80GB", four such hosts. No value for other text.
std::optional<std::vector<std::vector<GpuDevice>>> read_like_hosts(std::string_view text) {
  std::vector<int> counts;
  for (std::size_t end = text.find('x'); end != std::string_view::npos; end = text.find('x')) {
    const std::string_view number = trimmed(text.substr(0, end));
    int count = 0;
    const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    if (error != std::errc() || rest != number.data() + number.size() || count < 1 || count > kMostPlanned)
      return std::nullopt;
    counts.push_back(count);
    text.remove_prefix(end + 1);
  }
  const std::optional<GpuDevice> device = read_device(trimmed(text));
  if (!device || counts.size() > 2) return std::nullopt;
  const int gpus = counts.empty() ? 1 : counts.back(), hosts = counts.size() < 2 ? 1 : counts.front();
  if (static_cast<std::int64_t>(gpus) * hosts > kMostPlanned) return std::nullopt;
  return std::vector(static_cast<std::size_t>(hosts), std::vector(static_cast<std::size_t>(gpus), *device));
}

// Reads also "4 x A100-80GB + 4 x A30", one host with cards of several kinds.
std::optional<std::vector<std::vector<GpuDevice>>> read_hosts(std::string_view text) {
  const std::size_t plus = text.find('+');
  auto hosts = read_like_hosts(text.substr(0, plus));
  if (plus == std::string_view::npos || !hosts) return hosts;
  const auto others = read_hosts(text.substr(plus + 1));
  if (!others || hosts->size() != 1 || others->size() != 1) return std::nullopt;
  hosts->front().insert(hosts->front().end(), others->front().begin(), others->front().end());
  return hosts->front().size() > static_cast<std::size_t>(kMostPlanned) ? std::nullopt : hosts;
}

void read_devices(ConfigNode& node, const LayoutConfig& layout, PlanSection& plan) {
  for (const std::string& text : node.optional_texts("devices")) {
    const auto hosts = read_hosts(text);
    if (!hosts) {
      node.reject(
          "devices",
          "\"{}\" names no GPUs (a count and a card, or its memory, for each host; {} in all at most); {}write for "
          "example 8 x H100-80GB, 4 x 8 x A100-40GB for four hosts, 4 x A100-80GB + 4 x A30 for one host, or 2 x "
          "24GiB. Cards: {}",
          printable(text, 60), kMostPlanned, meant_cards(text), card_names(", "));
      continue;
    }
    plan.hosts.insert(plan.hosts.end(), hosts->begin(), hosts->end());
  }
  const std::string cards = fmt::format("({}|{})", kSizeForm, card_names("|"));
  node.text_form("devices",
                 fmt::format("^ *(([0-9]+ *x *){{0,2}}{0}|([0-9]+ *x *)?{0}( *\\+ *([0-9]+ *x *)?{0})+) *$", cards));
  if (!plan.hosts.empty() && node.has("device_memory")) {
    node.reject("devices",
                "is given together with `device_memory` (it says what its GPUs have already); remove one of the two");
  }
  if (!plan.hosts.empty() && layout.cpu_only) {
    node.reject(
        "devices",
        "is given together with layout.devices: cpu (the job would leave these GPUs idle); write layout.devices: auto "
        "after it, or remove it");
  }
}

// A remark for a memory in GB that cards are sold with: "80GB" are 76,294 MiB, but an A100-80GB has 81,920.
std::string note_of(const std::string& size, std::uint64_t bytes) {
  if (!size.ends_with("GB") || bytes % 1'000'000'000 != 0 || bytes > 1'000'000'000'000) return "";
  const std::string cards = cards_sold_with(static_cast<int>(bytes / 1'000'000'000));
  return cards.empty() ? ""
                       : fmt::format(
                             "{} is {} MiB; cards that are sold with it have more: {}. Write such a name to "
                             "plan with it",
                             size, bytes >> 20, cards);
}

void add_note(PlanSection& plan, const std::string& note) {
  if (!note.empty()) plan.note += (plan.note.empty() ? "" : "; ") + note;
}

// A remark if a run on such a card would be refused; otherwise empty.
std::string old_card_note(const GpuDevice& gpu) {
  return gpu.compute_capability >= kLeastGpuCapability
             ? ""
             : fmt::format(
                   "a {} has compute capability {}.{}, and the kernels are made for {}.{} and newer: a run "
                   "there would be refused",
                   gpu.name, gpu.compute_capability / 10, gpu.compute_capability % 10, kLeastGpuCapability / 10,
                   kLeastGpuCapability % 10);
}

}  // namespace

PlanSection read_plan(ConfigNode& root, const LayoutConfig& layout) {
  ConfigNode node = root.section("plan");
  root.outside_identity("plan");
  PlanSection plan;
  if (const auto text = node.optional_text("device_memory")) {
    const std::optional<GpuDevice> device = read_device(*text);
    if (!device) {
      node.reject("device_memory",
                  "\"{}\" is no amount of memory and no card (a number with its unit, or a name, is expected); {}write "
                  "for example 79.2GiB, 80GB or A100-80GB. Cards: {}",
                  printable(*text, 40), meant_cards(*text), card_names(", "));
    } else {
      plan.device = *device;
      plan.device_memory = device->total_bytes;
      if (find_gpu_card(*text) == nullptr) add_note(plan, note_of(*text, device->total_bytes));
      add_note(plan, old_card_note(*device));
    }
  }
  node.text_form("device_memory", fmt::format("^({}|{})$", kSizeForm, card_names("|")));
  read_devices(node, layout, plan);
  for (const std::vector<GpuDevice>& host : plan.hosts) {
    for (const GpuDevice& gpu : host) {
      if (plan.device_memory == 0 || gpu.total_bytes < plan.device_memory) plan.device_memory = gpu.total_bytes;
      if (const std::string note = old_card_note(gpu); plan.note.find(note) == std::string::npos) add_note(plan, note);
    }
  }
  return plan;
}

}  // namespace magister
