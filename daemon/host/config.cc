#include "daemon/host/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <utility>

namespace gpumem::host {
namespace {

// Collects the first error, so that a reader is a list of keys rather than a chain of checks.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  using Field = std::pair<std::string_view, std::function<void(const toml::node&)>>;

  // Gives every key of `table` to its field; another key is an error that lists the known ones.
  void read(const toml::table& table, std::string_view where, const std::vector<Field>& fields) {
    for (const auto& [key, node] : table) {
      const auto field = std::ranges::find(fields, key.str(), &Field::first);
      if (field != fields.end()) {
        field->second(node);
        continue;
      }
      std::string known;
      for (const Field& one : fields) known += (known.empty() ? "" : ", ") + std::string(one.first);
      fail(key.source(),
           "unknown key '" + std::string(key.str()) + "' in " + std::string(where) + "; known are: " + known);
    }
  }

  void fail(const toml::source_region& at, const std::string& what) {
    if (error_) return;
    error_ = Error{Code::kInvalidArgument, source_ + ":" + std::to_string(at.begin.line) + ":" +
                                               std::to_string(at.begin.column) + ": " + what};
  }

  // Readers of values, each to be put into a Field.
  auto text(std::string& into) {
    return [this, &into](const toml::node& node) {
      if (const auto value = node.value<std::string>(); node.is_string())
        into = *value;
      else
        fail(node.source(), "expected a text in quotes");
    };
  }
  auto name(std::string& into) {  // a user or group may be given as a number
    return [this, &into](const toml::node& node) {
      if (node.is_integer())
        into = std::to_string(*node.value<std::int64_t>());
      else
        text(into)(node);
    };
  }
  template <class Integer>
  auto number(Integer& into, std::int64_t least, std::int64_t most) {
    return [this, &into, least, most](const toml::node& node) {
      const auto value = node.value<std::int64_t>();
      if (!node.is_integer() || *value < least || *value > most) {
        return fail(node.source(),
                    "expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
      }
      into = static_cast<Integer>(*value);
    };
  }
  template <class AmountOrOptional>
  auto amount(AmountOrOptional& into) {
    return [this, &into](const toml::node& node) {
      if (node.is_integer()) {
        const std::int64_t bytes = *node.value<std::int64_t>();
        if (bytes < 0) return fail(node.source(), "expected an amount of at least 0");
        into = Amount::absolute({static_cast<std::uint64_t>(bytes)});
        return;
      }
      if (!node.is_string()) return fail(node.source(), "expected an amount such as \"24GiB\" or \"25%\"");
      auto parsed = parse_amount(*node.value<std::string>());
      if (parsed)
        into = *parsed;
      else
        fail(node.source(), parsed.error().message);
    };
  }
  auto table(std::function<void(const toml::table&)> then) {
    return [this, then = std::move(then)](const toml::node& node) {
      if (const auto* found = node.as_table())
        then(*found);
      else
        fail(node.source(), "expected a table");
    };
  }
  auto tables(std::function<void(const toml::table&)> then) {
    return [this, then = std::move(then)](const toml::node& node) {
      const auto* found = node.as_array();
      if (found == nullptr)
        return fail(node.source(), "expected a list of tables: write the name in double brackets");
      for (const auto& one : *found) table(then)(one);
    };
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  std::string source_;
  std::optional<Error> error_;
};

std::vector<Reader::Field> quota_fields(Reader& reader, QuotaConfig& quota) {
  return {{"guarantee", reader.amount(quota.guarantee)}, {"limit", reader.amount(quota.limit)}};
}

std::vector<Reader::Field> quotas_fields(Reader& reader, QuotasConfig& quotas) {
  auto fields = quota_fields(reader, quotas.everywhere);
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

void read_broker(Reader& reader, const toml::table& table, Config& config) {
  std::string folder = config.runtime_folder;
  reader.read(table, "[broker]",
              {{"runtime_dir", reader.text(folder)},
               {"socket_group", reader.name(config.socket_group)},
               {"max_sessions", reader.number(config.max_sessions, 1, 100'000)},
               {"max_sessions_per_tenant", reader.number(config.max_sessions_per_tenant, 1, 100'000)},
               {"max_wait_seconds", reader.number(config.max_wait_seconds, 0, std::int64_t{7} * 24 * 3600)},
               {"reserve", reader.amount(config.reserve)}});
  config.runtime_folder = folder;
}

void read_device(Reader& reader, const toml::table& table, Config& config) {
  std::string uuid;
  Amount reserve = config.reserve;
  reader.read(table, "[[device]]", {{"uuid", reader.text(uuid)}, {"reserve", reader.amount(reserve)}});
  if (uuid.empty()) reader.fail(table.source(), "a device needs its 'uuid' (nvidia-smi -L)");
  if (std::ranges::count(config.devices, uuid) != 0)
    reader.fail(table.source(), "device '" + uuid + "' is given twice");
  config.devices.push_back(uuid);
  config.reserve_by_device.insert_or_assign(uuid, reserve);
}

void read_tenant(Reader& reader, const toml::table& table, Config& config) {
  TenantConfig tenant;
  auto fields = quotas_fields(reader, tenant.quotas);
  fields.emplace_back("name", reader.text(tenant.name));
  fields.emplace_back("user", reader.name(tenant.user));
  fields.emplace_back("group", reader.name(tenant.group));
  reader.read(table, "[[tenant]]", fields);
  if (tenant.name.empty()) reader.fail(table.source(), "a tenant needs a 'name'");
  if (tenant.user.empty() == tenant.group.empty()) {
    reader.fail(table.source(), "tenant '" + tenant.name + "' needs either a 'user' or a 'group'");
  }
  if (std::ranges::count(config.tenants, tenant.name, &TenantConfig::name) != 0) {
    reader.fail(table.source(), "tenant '" + tenant.name + "' is given twice");
  }
  config.tenants.push_back(std::move(tenant));
}

void read_default(Reader& reader, const toml::table& table, Config& config) {
  QuotasConfig quotas;
  bool refuse = false;
  auto fields = quotas_fields(reader, quotas);
  fields.emplace_back("refuse", [&](const toml::node& node) {
    if (node.is_boolean())
      refuse = *node.value<bool>();
    else
      reader.fail(node.source(), "expected true or false");
  });
  reader.read(table, "[default]", fields);
  config.others = refuse ? std::nullopt : std::optional(quotas);
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& source) {
  toml::table document;
  try {
    document = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    return Error{Code::kInvalidArgument, source + ":" + std::to_string(at.line) + ":" +
                                             std::to_string(at.column) + ": " +
                                             std::string(error.description())};
  }
  Config config;
  Reader reader(source);
  // [broker] first: its `reserve` is what devices fall back on, wherever it stands in the file.
  if (const auto* broker = document["broker"].as_table()) read_broker(reader, *broker, config);
  reader.read(
      document, "the file",
      {{"broker", reader.table([](const toml::table&) {})},
       {"device", reader.tables([&](const toml::table& table) { read_device(reader, table, config); })},
       {"tenant", reader.tables([&](const toml::table& table) { read_tenant(reader, table, config); })},
       {"default", reader.table([&](const toml::table& table) { read_default(reader, table, config); })}});
  if (reader.error()) return *reader.error();
  return config;
}

Result<Config> load_config(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return errno_error(errno, "cannot read " + file.string());
  std::string text;
  std::array<char, 4096> piece;
  while (stream.read(piece.data(), piece.size()), stream.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad()) return errno_error(errno, "cannot read " + file.string());  // a folder, for one
  return parse_config(text, file.string());
}

}  // namespace gpumem::host
