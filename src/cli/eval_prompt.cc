#include "cli/eval_prompt.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace millrace {
namespace {

// The numbers of the examples in the order in which this question takes them.
std::vector<size_t> order_of_examples(size_t size, const FewshotSettings& settings, size_t index) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  if (settings.order == FewshotOrder::kRotate) {
    const auto count = static_cast<size_t>(settings.count);
    const size_t start = (index % size) * count % size;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(start), order.end());
  } else if (settings.order == FewshotOrder::kRandom) {
    // Fisher and Yates by hand: the library's shuffle may differ between systems.
    std::seed_seq seed{settings.seed, settings.seed >> 32, uint64_t{index}};
    std::mt19937_64 random(seed);
    for (size_t i = size; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  }
  return order;
}

}  // namespace

Result<FewshotOrder> parse_fewshot_order(std::string_view name) {
  if (name == "rotate") return FewshotOrder::kRotate;
  if (name == "first") return FewshotOrder::kFirst;
  if (name == "random") return FewshotOrder::kRandom;
  return fail("--fewshot-order {}: unknown; choose from rotate, first, random", name);
}

Result<std::vector<const EvalRow*>> choose_examples(const std::vector<EvalRow>& examples,
                                                    const FewshotSettings& settings, size_t index,
                                                    std::string_view question) {
  std::vector<const EvalRow*> chosen;
  const auto count = static_cast<size_t>(settings.count);
  if (count == 0) return chosen;
  for (const size_t i : order_of_examples(examples.size(), settings, index)) {
    if (chosen.size() == count) break;
    if (examples[i].question != question) chosen.push_back(&examples[i]);
  }
  if (chosen.size() < count) {
    return fail("{} examples besides the question itself; --num-fewshot asks for {}", chosen.size(),
                count);
  }
  return chosen;
}

std::string eval_prompt(EvalTask task, bool chat, std::string_view question,
                        const std::vector<const EvalRow*>& examples) {
  if (task == EvalTask::kNeedle || (chat && examples.empty())) return std::string(question);
  std::string text;
  for (const EvalRow* example : examples) {
    text += "Question: " + example->question + "\nAnswer: " + example->answer + "\n\n";
  }
  return text + "Question: " + std::string(question) + "\nAnswer:";
}

std::vector<std::string> eval_stops(EvalTask task, bool chat) {
  if (chat || task == EvalTask::kNeedle) return {};
  return {"Question"};
}

}  // namespace millrace
