// The words of a fault.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "sim/control/control_time.h"
#include "sim/control/faults.h"
#include "sim/control/result_names.h"

namespace gpumem::sim {
namespace {

constexpr const char* kForm =
    "; wanted is CALL, then one or more of: fail RESULT, delay TIME, kill; then any of: nth N, from N, times "
    "N, "
    "probability P, seed N, pid N; for example `cuMemCreate fail OUT_OF_MEMORY nth 3`";

Error bad_fault(const std::string& why) { return {Code::kInvalidArgument, "fault: " + why + kForm}; }

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string_view next_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t\n"), rest.size()));
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t\n"));
  rest.remove_prefix(word.size());
  return word;
}

std::span<const ResultName> results_of(std::string_view call) {
  return call.starts_with("nvml") ? nvml_results() : cuda_results();
}

/// The whole of `text` as a number of at least `least`.
template <class Number>
std::optional<Number> number(std::string_view text, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least)) return std::nullopt;
  return value;
}

/// Reads one part's value into `to`. Each gives what is wanted instead, or nothing if all is well.
template <class Number>
std::string read_number(std::string_view text, Number least, Number& to) {
  const auto value = number(text, least);
  if (value) to = *value;
  return value ? "" : "a whole number of at least " + std::to_string(least);
}

std::string read_result(Fault& fault, std::string_view text) {
  const auto results = results_of(fault.call);
  const auto found = result_number(results, text);
  if (found) fault.error = *found;
  return found ? ""
               : std::string("the name of one of its library's errors, such as ") + results[2].name +
                     ", or their number, not 0";
}

std::string read_delay(Fault& fault, std::string_view text) {
  const auto time = parse_time(text);
  if (time) fault.delay = std::chrono::duration_cast<std::chrono::nanoseconds>(*time);
  return time && fault.delay.count() > 0 ? "" : "a time above 0, such as 5ms or 200us";
}

std::string read_probability(Fault& fault, std::string_view text) {
  const auto value = number(text, 0.0);
  if (value) fault.probability = *value;
  return value && *value > 0 && *value <= 1 ? "" : "a number above 0, at most 1";
}

std::string read_nth(Fault& fault, std::string_view text) {
  std::string wanted = read_number(text, std::uint64_t{1}, fault.from);
  fault.until = fault.from;
  return wanted;
}

using Reader = std::string (*)(Fault&, std::string_view);
const std::map<std::string_view, Reader>& readers() {
  static const std::map<std::string_view, Reader> known = {
      {"fail", read_result},
      {"delay", read_delay},
      {"nth", read_nth},
      {"probability", read_probability},
      {"from",
       [](Fault& fault, std::string_view text) { return read_number(text, std::uint64_t{1}, fault.from); }},
      {"times",
       [](Fault& fault, std::string_view text) { return read_number(text, std::uint64_t{1}, fault.times); }},
      {"seed",
       [](Fault& fault, std::string_view text) { return read_number(text, std::uint64_t{0}, fault.seed); }},
      {"pid", [](Fault& fault, std::string_view text) { return read_number(text, pid_t{1}, fault.pid); }},
  };
  return known;
}

/// Reads the value of `part` from the rest of the rule.
Result<void> read_part(Fault& fault, std::string_view part, std::string_view& rest) {
  if (part == "kill") {
    fault.kill = true;
    return {};
  }
  const auto reader = readers().find(part);
  if (reader == readers().end()) return bad_fault(in_quotes(part) + " is no part of a fault");
  const std::string_view value = next_word(rest);
  const std::string wanted = reader->second(fault, value);
  if (wanted.empty()) return {};
  return Error{Code::kInvalidArgument,
               "fault: " + std::string(part) + " " + in_quotes(value) + ": wanted is " + wanted};
}

}  // namespace

Result<Fault> parse_fault(std::string_view text) {
  Fault fault;
  fault.call = next_word(text);
  if (!fault.call.starts_with("cu") && !fault.call.starts_with("nvml")) {
    return bad_fault(in_quotes(fault.call) + " is no driver call, such as cuMemCreate, cuMem* or nvmlInit");
  }
  if (fault.call.size() >= layout::kCallLength || fault.call.find('*') < fault.call.size() - 1) {
    return bad_fault(in_quotes(fault.call) + " is too long, or has a star that is not its end");
  }
  std::map<std::string_view, int> seen;
  for (std::string_view part = next_word(text); !part.empty(); part = next_word(text)) {
    if (++seen[part] > 1) return bad_fault(in_quotes(part) + " is there twice");
    if (auto read = read_part(fault, part, text); !read) return read.error();
  }
  if (seen.contains("nth") && (seen.contains("from") || seen.contains("times")))
    return bad_fault("nth is one call alone; it goes neither with from nor with times");
  if (fault.kill && fault.error != 0)
    return bad_fault("a killed caller gets no result; fail or kill, not both");
  if (!fault.kill && fault.error == 0 && fault.delay.count() == 0)
    return bad_fault(in_quotes(fault.call) + ": it does nothing");
  return fault;
}

std::string to_string(const Fault& fault) {
  std::string text = fault.call;
  if (fault.error != 0) text += " fail " + result_name(results_of(fault.call), fault.error);
  if (fault.delay.count() != 0) text += " delay " + to_string(Picoseconds(fault.delay));
  if (fault.kill) text += " kill";
  if (fault.until == fault.from) {
    text += " nth " + std::to_string(fault.from);
  } else if (fault.from != 1) {
    text += " from " + std::to_string(fault.from);
  }
  if (fault.times != Fault::kForever) text += " times " + std::to_string(fault.times);
  if (fault.probability != 1) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", fault.probability);
    text += std::string(" probability ") + digits;
  }
  if (fault.seed != 0) text += " seed " + std::to_string(fault.seed);
  if (fault.pid != 0) text += " pid " + std::to_string(fault.pid);
  return text;
}

}  // namespace gpumem::sim
