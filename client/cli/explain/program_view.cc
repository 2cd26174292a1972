#include <algorithm>

#include "base/text/device_name.h"
#include "base/text/printable.h"
#include "client/cli/explain/explain.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {
namespace {

const Account* account_on(const Program& program, const std::string& device) {
  const auto found = std::ranges::find(program.accounts, device, &Account::device);
  return found == program.accounts.end() ? nullptr : &*found;
}

std::string heading(const Program& program) {
  std::string text;
  if (program.subject.job != 0) {
    text = "job " + std::to_string(program.subject.job);
    if (!program.job.label().empty()) text += " (" + escape_non_ascii(program.job.label()) + ")";
    text += ", " + std::to_string(program.members.size()) +
            (program.members.size() == 1 ? " process" : " processes") + ", tenant " +
            escape_non_ascii(tenant_text(program.job.tenant()));
    return wrapped(text);
  }
  text = "process " + std::to_string(program.subject.pid);
  for (const Member& one : program.members)
    text += (one.command.empty() ? "" : " " + escape_non_ascii(one.command)) +
            (one.tenant.empty() ? ", of no tenant" : ", tenant " + escape_non_ascii(tenant_text(one.tenant)));
  return wrapped(text);
}

std::string use_text(const Program& program, const DeviceUse& use, const Layout& layout) {
  std::vector<Line> lines{use.sum};
  lines.push_back(line_of("imported", "mapped besides, of others' memory", use.imported));
  lines.push_back(line_of("nvidia_smi", "listed by the driver, as nvidia-smi shows it", use.listed));
  lines.push_back(line_of("addresses", "addresses reserved, without memory",
                          use.is_told ? std::optional(use.reserved - use.committed) : std::nullopt));
  for (const v1::JobUsage& one : program.job.devices()) {
    if (one.device() != use.device) continue;
    lines.push_back(line_of("job_reserved", "reserved for the job, not lent", one.reserved()));
    lines.push_back(line_of("job_peak", "the most that it was lent", one.peak()));
  }
  return "\n" + printable(layout.device(use.device)) + "\n" + lines_text(lines, layout);
}

std::string host_text(const Program& program, const Layout& layout) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{.title = "PID", .align = kRight},
               {.title = "COMMAND", .least = 8},
               {.title = "VIRT", .align = kRight},
               {.title = "RES", .align = kRight},
               {.title = "SHR", .align = kRight}});
  for (const Member& one : program.members) {
    const auto cell = [&](std::uint64_t HostMemory::*bytes) {
      return one.host ? size_text(*one.host.*bytes) : "not told";
    };
    table.add({one.pid == 0 ? "?" : std::to_string(one.pid), escape_non_ascii(one.command),
               cell(&HostMemory::virt), cell(&HostMemory::resident), cell(&HostMemory::shared)});
  }
  return program.members.empty() ? "" : "\n" + table.text(layout);
}

// ---- The three questions ----

HostMemory host_sum(const Program& program) {
  HostMemory sum;
  for (const Member& one : program.members) {
    if (!one.host) continue;
    sum.virt += one.host->virt;
    sum.resident += one.host->resident;
    sum.shared += one.host->shared;
  }
  return sum;
}

std::string amount_of(std::optional<std::uint64_t> bytes) {
  return bytes ? size_text(*bytes) : "an amount that is not told";
}

std::string why_other_amounts(const Program& program, const DeviceUse& use, const Layout& layout) {
  const std::string device = printable(layout.device(use.device));
  std::string text = "Why different amounts on different computers? ";
  for (const v1::DeviceStatus& one : program.status.devices())
    if (one.uuid() == use.device)
      text += device + " has " + size_text(one.total()) + ", of which the broker lends " +
              size_text(one.pool()) + ". ";
  if (use.limit != 0)
    text += std::string("The limit here is ") + size_text(use.limit) +
            ". Programs that take a share of the device take that share of the limit. ";
  return text + "The context here takes " +
         amount_of(use.context.value_or(0) != 0 ? use.context : std::nullopt) +
         "; other GPUs and driver versions take other amounts.";
}

std::string why_virtual(const Program& program, const DeviceUse* use) {
  const HostMemory host = host_sum(program);
  std::string text = "Why so much virtual memory? ";
  text += host.virt == 0 ? "VIRT is not told. "
                         : "VIRT is " + size_text(host.virt) + ", of which " + size_text(host.resident) +
                               " are in the host's memory (RES). ";
  if (use != nullptr && use->is_told)
    text += "The program has reserved " + size_text(use->reserved) + " of addresses for device memory, and " +
            size_text(use->committed) + " of them have memory. ";
  text += "An address alone takes no memory. The driver and the libraries reserve more of them.";
  if (host.virt != 0)
    text += " SHR, " + size_text(host.shared) + ", is the part of RES that is files and shared memory.";
  return text;
}

std::string why_nvidia_smi(const Program& program, const DeviceUse& use, const Layout& layout) {
  std::string text = "Why does nvidia-smi say something else? ";
  const auto lent = static_cast<std::uint64_t>(use.sum.part("lent").bytes.value_or(0));
  if (!use.listed) {
    text += "The driver tells no memory of this process. ";
  } else if (const auto beside = use.context.value_or(0); lent != 0 && *use.listed >= lent + beside) {
    text +=
        "nvidia-smi lists " + size_text(*use.listed) + ", with the " + size_text(lent) + " that are lent. ";
  } else {
    text += "nvidia-smi lists " + size_text(*use.listed) +
            ": the context, and what it takes past the broker. The " + size_text(lent) +
            " that are lent count where they were created, in the broker. ";
  }
  const Account* account = account_on(program, use.device);
  if (account == nullptr) return text;
  const Line& used = account->sum.part("used");
  return text + "The " + amount_text(used.bytes) + " that it shows as used on " +
         printable(layout.device(use.device)) + " contain the idle " +
         amount_text(used.part("pool").part("idle").bytes) + " of the pool.";
}

}  // namespace

std::string program_text(const Program& program, const Layout& layout) {
  std::string text = heading(program);
  for (const DeviceUse& use : program.uses) text += use_text(program, use, layout);
  if (program.uses.empty()) text += "\nno memory of a device that the broker lends\n";
  text += host_text(program, layout);
  text +=
      "\n" +
      wrapped(
          "torch.cuda.memory_reserved, TensorFlow's get_memory_info, JAX's memory_stats: not told by this "
          "program");
  const bool has_gpu = !program.uses.empty() && program.uses.front().device != kHostStore;  // the last
  const DeviceUse* use = has_gpu ? &program.uses.front() : nullptr;
  if (use != nullptr) text += "\n" + wrapped(why_other_amounts(program, *use, layout));
  text += "\n" + wrapped(why_virtual(program, use));
  if (use != nullptr) text += "\n" + wrapped(why_nvidia_smi(program, *use, layout));
  return text;
}

Json program_json(const Program& program) {
  Json processes = Json::array();
  for (const Member& one : program.members) {
    const auto host = [&](std::uint64_t HostMemory::*bytes) {
      return one.host ? Json(*one.host.*bytes) : Json();
    };
    processes.push_back({{"pid", one.pid == 0 ? Json() : Json(one.pid)},
                         {"uid", one.uid},
                         {"user", user_name(one.uid)},
                         {"command", one.command},
                         {"tenant", one.tenant.empty() ? Json() : Json(one.tenant)},
                         {"virt", host(&HostMemory::virt)},
                         {"resident", host(&HostMemory::resident)},
                         {"shared", host(&HostMemory::shared)}});
  }
  Json devices = Json::array();
  for (const DeviceUse& use : program.uses) {
    devices.push_back({{"device", use.device},
                       {"limit", use.limit == 0 ? Json() : Json(use.limit)},
                       {"addresses", use.is_told ? Json(use.reserved) : Json()},
                       {"imported", use.imported},
                       {"nvidia_smi", use.listed ? Json(*use.listed) : Json()},
                       {"sum", line_json(use.sum)}});
  }
  return {{"pid", program.subject.job == 0 ? Json(program.subject.pid) : Json()},
          {"job", program.subject.job == 0 ? Json() : Json(program.subject.job)},
          {"processes", std::move(processes)},
          {"devices", std::move(devices)},
          {"frameworks", nullptr}};
}

}  // namespace gpumem::cli
