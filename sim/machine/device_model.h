#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The properties of all simulated devices, for CUDA and for NVML. Except for names and versions they are
/// constants like those of an H200; neither load nor time changes them.
namespace gpumem::sim::device_model {

inline constexpr char kName[] = "gpumem simulated GPU";
inline constexpr int kCudaVersion = 13000;
inline constexpr char kDriverVersion[] = "580.0.0";
inline constexpr char kDriverBranch[] = "r580_00";
inline constexpr char kNvmlVersion[] = "13.580.0";

inline constexpr int kComputeMajor = 9, kComputeMinor = 0;
inline constexpr int kMultiprocessors = 132;
inline constexpr int kCoreClockMhz = 1980, kMemoryClockMhz = 3201;
inline constexpr int kMemoryBusBits = 6144;
inline constexpr std::uint32_t kPciDevice = 0x233510de;     ///< device and vendor
inline constexpr std::uint32_t kPciSubsystem = 0x18be10de;  ///< device and vendor

/// The PCI bus that device `index` of a machine sits on; its domain, device and function are 0.
constexpr std::uint32_t pci_bus(std::uint32_t index) { return index + 1; }

/// `0000:01:00.0` for device 0, with so many digits of the domain.
std::string pci_bus_id(std::uint32_t index, int domain_digits = 4);

/// The index of the device that sits at `id`, in hexadecimal: domain:bus:device.function, where the domain,
/// the function or both may be left out. Nothing if it is not of that form or no device can sit there.
std::optional<std::uint32_t> device_at(std::string_view id);

}  // namespace gpumem::sim::device_model
