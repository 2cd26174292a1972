#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

namespace gpumem {
namespace {

// How many bytes of `text` are its first character in UTF-8; 0 if they are none.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  if (byte(0) < 0xc2 || byte(0) > 0xf4) return 0;
  const std::size_t size = byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies past U+10FFFF.
  if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f)) return 0;
  if ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f)) return 0;
  return size;
}

// Words may come from clients: whatever they are, the line stays one JSON object.
void append_json_string(std::string_view text, spdlog::memory_buf_t& out) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const char c = text.front();
    if (size == 0) {
      out.append(kReplacement);
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (size == 1 && static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out.append(std::string_view(escape.data(), 6));
    } else {
      out.append(text.substr(0, size));
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
}

// The message as the inside of a JSON string.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    append_json_string({message.payload.data(), message.payload.size()}, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JsonMessage>(); }
};

}  // namespace

Result<void> start_log(LogFormat format, std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return Error{Code::kInvalidArgument, "'" + std::string(level) +
                                             "' is no log level; use trace, debug, info, warning, error, "
                                             "critical or off"};
  }
  auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  if (format == LogFormat::kJson) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<JsonMessage>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","pid":%P,"message":"%*"})");
    sink->set_formatter(std::move(formatter));
  } else {
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %v");
  }
  auto logger = std::make_shared<spdlog::logger>("gpumem", std::move(sink));
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace gpumem
