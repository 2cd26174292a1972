#include "daemon/kubernetes/json_fields.h"

namespace gpumem::kubernetes {
namespace {

constexpr int kDeepest = 100;  // objects of Kubernetes have a tenth of it

}  // namespace

const Json& field(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kNone;
  const Json* at = &object;
  for (const std::string_view name : path) {
    if (!at->is_object()) return kNone;
    const auto found = at->find(name);
    if (found == at->end()) return kNone;
    at = &*found;
  }
  return *at;
}

std::string text_field(const Json& object, std::initializer_list<std::string_view> path) {
  const auto* text = field(object, path).get_ptr<const std::string*>();
  return text == nullptr ? std::string() : *text;
}

const Json::array_t& array_field(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json::array_t kNone;
  const auto* array = field(object, path).get_ptr<const Json::array_t*>();
  return array == nullptr ? kNone : *array;
}

// Deeper nesting would overflow the stack when the value is copied or written.
Json parse_json(std::string_view text) {
  bool is_too_deep = false;
  Json parsed = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        is_too_deep = is_too_deep || depth > kDeepest;
        return !is_too_deep;
      },
      false);
  return is_too_deep ? Json(Json::value_t::discarded) : parsed;
}

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace gpumem::kubernetes
