#pragma once
#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/host/config/config.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Parses TOML. `source` names it in messages. Errors  kInvalidArgument: `source:line:column: what is wrong`.
Result<toml::table> parse_toml(std::string_view text, const std::string& source);

/// Reads tables key by key into variables of the caller, and keeps the first error. So the reader of a table
/// is a list of its keys, not a chain of checks.
class TomlReader {
 public:
  explicit TomlReader(std::string source) : source_(std::move(source)) {}

  using Field = std::pair<std::string_view, std::function<void(const toml::node&)>>;

  /// Gives every key of `table` to its field; another key is an error that lists the known ones.
  void read(const toml::table& table, std::string_view where, const std::vector<Field>& fields);
  void fail(const toml::source_region& at, const std::string& what);
  const std::optional<Error>& error() const { return error_; }
  /// The keys of all tables that were read, there or not, each with the name of its table.
  const std::map<std::string, std::string>& keys() const { return keys_; }
  /// Where each key belongs that may be found in another table, for the message about it.
  void set_places(std::map<std::string, std::string> places) { places_ = std::move(places); }

  // Readers of values, each to be put into a Field.

  auto text(std::string& into) {
    return [this, &into](const toml::node& node) {
      if (const auto value = node.value<std::string>(); node.is_string())
        into = *value;
      else
        fail(node.source(), "expected a text in quotes");
    };
  }
  auto texts(std::vector<std::string>& into) {
    return [this, &into](const toml::node& node) {
      const auto* list = node.as_array();
      if (list == nullptr) return fail(node.source(), "expected a list of texts in quotes");
      for (const auto& one : *list) text(into.emplace_back())(one);
    };
  }
  /// Of a user or group, which may be given as a number.
  auto name(std::string& into) {
    return [this, &into](const toml::node& node) {
      if (node.is_integer())
        into = std::to_string(*node.value<std::int64_t>());
      else
        text(into)(node);
    };
  }
  auto boolean(bool& into) {
    return [this, &into](const toml::node& node) {
      if (node.is_boolean())
        into = *node.value<bool>();
      else
        fail(node.source(), "expected true or false");
    };
  }
  /// `into`  a number, or an optional one.
  template <class Number>
  auto number(Number& into, std::int64_t least, std::int64_t most) {
    return [this, &into, least, most](const toml::node& node) {
      const auto value = node.value<std::int64_t>();
      if (!node.is_integer() || *value < least || *value > most)
        return fail(node.source(),
                    "expected a whole number from " + std::to_string(least) + " to " + std::to_string(most));
      assign(into, *value);
    };
  }
  /// A whole number of `Unit`s, such as std::chrono::seconds.
  template <class Unit, class Duration>
  auto duration(Duration& into, std::int64_t least, std::int64_t most) {
    return [this, &into, least, most](const toml::node& node) {
      std::int64_t count = 0;
      number(count, least, most)(node);
      into = Unit(count);
    };
  }
  /// `into`  an Amount, or an optional one.
  template <class AmountOrOptional>
  auto amount(AmountOrOptional& into) {
    return [this, &into](const toml::node& node) {
      if (auto read = amount_of(node)) into = *read;
    };
  }
  /// An amount that is a share of nothing.
  auto bytes(Bytes& into) {
    return [this, &into](const toml::node& node) {
      const auto read = amount_of(node);
      if (read && read->kind() != Amount::Kind::kAbsolute)
        fail(node.source(), "expected an amount such as \"600MiB\", and no share");
      else if (read)
        into = read->of({});
    };
  }
  template <class Value>
  auto choice(Value& into, std::vector<std::pair<std::string_view, Value>> choices) {
    return [this, &into, choices = std::move(choices)](const toml::node& node) {
      const auto text = node.value<std::string>();
      const auto chosen = std::ranges::find_if(choices, [&](const auto& one) { return one.first == text; });
      if (chosen != choices.end()) {
        into = chosen->second;
        return;
      }
      std::string known;
      for (const auto& one : choices)
        known += (known.empty() ? "\"" : ", \"") + std::string(one.first) + "\"";
      fail(node.source(), "expected one of " + known);
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

 private:
  template <class Integer>
  static void assign(Integer& into, std::int64_t value) {
    into = static_cast<Integer>(value);
  }
  template <class Integer>
  static void assign(std::optional<Integer>& into, std::int64_t value) {
    into = static_cast<Integer>(value);
  }
  std::optional<Amount> amount_of(const toml::node& node);

  std::string source_;
  std::map<std::string, std::string> places_, keys_;
  std::optional<Error> error_;
};

/// The fields of a table that gives quotas on every GPU, with `device` for other ones on some, and
/// `host_limit`.
std::vector<TomlReader::Field> quotas_fields(TomlReader& reader, QuotasConfig& quotas);

}  // namespace gpumem::host
