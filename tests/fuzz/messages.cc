#include "tests/fuzz/messages.h"

#include <string>

namespace gpumem::fuzz {
namespace {

using google::protobuf::FieldDescriptor, google::protobuf::Message, google::protobuf::Reflection;

constexpr std::uint64_t kPiece = std::uint64_t{2} << 20;
constexpr int kDeepest = 4;

class Filler {
 public:
  Filler(Input& input, std::span<const std::string_view> texts) : input_(input), texts_(texts) {}

  void fill(Message& message, int depth) {
    const auto& type = *message.GetDescriptor();
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      const auto& choice = *type.oneof_decl(i);
      const auto chosen = input_.below(static_cast<std::size_t>(choice.field_count()) + 1);
      if (chosen != 0) set(message, *choice.field(static_cast<int>(chosen) - 1), depth);
    }
    for (int i = 0; i < type.field_count() && !input_.empty(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.real_containing_oneof() != nullptr) continue;
      if (field.is_repeated()) {
        for (std::size_t n = input_.one_in(32) ? input_.byte() : input_.below(4); n != 0 && !input_.empty();
             --n)
          add(message, field, depth);
      } else if (!field.has_presence() || input_.one_in(2)) {
        set(message, field, depth);
      }
    }
  }

 private:
  void set(Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT64: return reflection.SetUInt64(&message, &field, number());
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.SetUInt32(&message, &field, static_cast<std::uint32_t>(number()));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.SetInt64(&message, &field, static_cast<std::int64_t>(number()));
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection.SetInt32(&message, &field, static_cast<std::int32_t>(number()));
      case FieldDescriptor::CPPTYPE_BOOL: return reflection.SetBool(&message, &field, input_.one_in(2));
      case FieldDescriptor::CPPTYPE_ENUM: return reflection.SetEnumValue(&message, &field, input_.byte());
      case FieldDescriptor::CPPTYPE_STRING: return reflection.SetString(&message, &field, text());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth < kDeepest) fill(*reflection.MutableMessage(&message, &field), depth + 1);
        return;
      default: return;  // the contract has no others
    }
  }

  void add(Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT64: return reflection.AddUInt64(&message, &field, number());
      case FieldDescriptor::CPPTYPE_STRING: return reflection.AddString(&message, &field, text());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth < kDeepest) fill(*reflection.AddMessage(&message, &field), depth + 1);
        return;
      default: return;
    }
  }

  // An id, a number of pieces of memory, or any.
  std::uint64_t number() {
    const std::uint8_t kind = input_.byte();
    if (kind < 0x80) return kind;
    if (kind < 0xf0) return (kind - 0x80) * kPiece;
    return kind == 0xff ? ~std::uint64_t{0} : input_.word();
  }

  std::string text() {
    const std::size_t which = input_.byte();
    if (which < 0xf0 && !texts_.empty()) return std::string(texts_[which % texts_.size()]);
    return std::string(input_.text(input_.byte()));
  }

  Input& input_;
  const std::span<const std::string_view> texts_;
};

}  // namespace

void fill(Message& message, Input& input, std::span<const std::string_view> texts) {
  Filler(input, texts).fill(message, 0);
}

}  // namespace gpumem::fuzz
