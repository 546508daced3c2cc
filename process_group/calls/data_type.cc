#include "process_group/calls/data_type.h"

namespace hccl_like {

std::optional<DataType> data_type(c10::ScalarType type) {
  using c10::ScalarType;
  switch (type) {
    case ScalarType::Float:
      return DataType::kFloat32;
    case ScalarType::Double:
      return DataType::kFloat64;
    case ScalarType::Half:
      return DataType::kFloat16;
    case ScalarType::BFloat16:
      return DataType::kBFloat16;
    case ScalarType::Float8_e4m3fn:
      return DataType::kFloat8E4M3FN;
    case ScalarType::Float8_e5m2:
      return DataType::kFloat8E5M2;
    case ScalarType::Char:
      return DataType::kInt8;
    case ScalarType::Short:
      return DataType::kInt16;
    case ScalarType::Int:
      return DataType::kInt32;
    case ScalarType::Long:
      return DataType::kInt64;
    case ScalarType::Byte:
      return DataType::kUInt8;
    case ScalarType::UInt16:
      return DataType::kUInt16;
    case ScalarType::UInt32:
      return DataType::kUInt32;
    case ScalarType::UInt64:
      return DataType::kUInt64;
    case ScalarType::Bool:
      return DataType::kBool;
    case ScalarType::ComplexFloat:
      return DataType::kComplex64;
    case ScalarType::ComplexDouble:
      return DataType::kComplex128;
    default:
      return std::nullopt;
  }
}

}  // namespace hccl_like
