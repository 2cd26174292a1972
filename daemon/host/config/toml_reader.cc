#include "daemon/host/config/toml_reader.h"

#include "base/text/device_name.h"
#include "daemon/core/words/types.h"

namespace gpumem::host {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? std::string_view()
                            : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// TOML alone would say "expected digit, saw 'G'". Empty: the line has no such value.
std::string advice_on_quotes(std::string_view text, std::size_t line) {
  for (std::size_t i = 1; i < line && !text.empty(); ++i)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find_first_of("\n#"));
  const auto equals = text.find('=');
  if (equals == text.npos) return "";
  const std::string_view value = trimmed(text.substr(equals + 1));
  if (value.empty() || value.starts_with('"') || !parse_amount(value)) return "";
  return "; amounts are texts: write them in quotes, \"" + std::string(value) + "\"";
}

std::vector<TomlReader::Field> quota_fields(TomlReader& reader, QuotaConfig& quota) {
  return {{"guarantee", reader.amount(quota.guarantee)},
          {"limit", reader.amount(quota.limit)},
          {"weight", reader.number(quota.weight, 1, core::kMaxWeight)},
          {"priority", reader.number(quota.priority, 0, core::kMaxPriority)},
          {"reserve", reader.amount(quota.reserve)}};
}

}  // namespace

Result<toml::table> parse_toml(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    return Error{Code::kInvalidArgument,
                 source + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " +
                     std::string(error.description()) + advice_on_quotes(text, at.line)};
  }
}

void TomlReader::read(const toml::table& table, std::string_view where, const std::vector<Field>& fields) {
  for (const Field& one : fields) keys_.emplace(one.first, where);
  for (const auto& [key, node] : table) {
    const auto field = std::ranges::find(fields, key.str(), &Field::first);
    if (field != fields.end()) {
      field->second(node);
      continue;
    }
    std::string known;
    for (const Field& one : fields) known += (known.empty() ? "" : ", ") + std::string(one.first);
    const auto place = places_.find(std::string(key.str()));
    const std::string elsewhere =
        place == places_.end() || place->second == where ? "" : "; it belongs in " + place->second;
    fail(key.source(), "unknown key '" + std::string(key.str()) + "' in " + std::string(where) + elsewhere +
                           "; known are: " + known);
  }
}

void TomlReader::fail(const toml::source_region& at, const std::string& what) {
  if (error_) return;
  error_ = Error{Code::kInvalidArgument, source_ + ":" + std::to_string(at.begin.line) + ":" +
                                             std::to_string(at.begin.column) + ": " + what};
}

std::optional<Amount> TomlReader::amount_of(const toml::node& node) {
  if (node.is_integer()) {
    const std::int64_t bytes = *node.value<std::int64_t>();
    if (bytes >= 0) return Amount::absolute({static_cast<std::uint64_t>(bytes)});
    fail(node.source(), "expected an amount of at least 0");
    return std::nullopt;
  }
  if (!node.is_string()) {
    fail(node.source(), "expected an amount such as \"24GiB\" or \"25%\"");
    return std::nullopt;
  }
  auto parsed = parse_amount(*node.value<std::string>());
  if (parsed) return *parsed;
  fail(node.source(), parsed.error().message);
  return std::nullopt;
}

std::vector<TomlReader::Field> quotas_fields(TomlReader& reader, QuotasConfig& quotas) {
  auto fields = quota_fields(reader, quotas.everywhere);
  fields.emplace_back("host_limit", [&reader, &quotas](const toml::node& node) {
    reader.amount(quotas.by_device[std::string(kHostStore)].limit)(node);
  });
  fields.emplace_back("device", reader.tables([&reader, &quotas](const toml::table& table) {
    std::string uuid;
    QuotaConfig quota;
    auto device_fields = quota_fields(reader, quota);
    device_fields.emplace_back("uuid", reader.text(uuid));
    reader.read(table, "a tenant's device", device_fields);
    if (uuid.empty()) reader.fail(table.source(), "a tenant's device needs its 'uuid'");
    if (!quotas.by_device.emplace(uuid, quota).second) {
      reader.fail(table.source(), "device '" + uuid + "' is given twice for one tenant");
    }
  }));
  return fields;
}

}  // namespace gpumem::host
