// A parsed template: expressions and statements as trees. Immutable after parsing.
#pragma once

#include <memory>

#include "text/jinja/filters.h"
#include "text/jinja/runtime.h"

namespace magister::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list, dict;  // *list, **dict
};

enum class ExpressionKind {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kSign,
  kAnd,
  kOr,
  kCondition,
  kCompare,
  kArithmetic,
  kConcat,
  kNamespaceTarget
};

// parts, by kind. kDict: key, value, key, value ...; kItem: value, key; kSlice: value, start, stop, step (null:
// absent); kFilter, kTest: input (null: the body of a block); kCondition: test, then, else (null: undefined); kCompare:
// the operands between `operators`; kSign and kArithmetic: operands of the operator `name`.
struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Place place;
  int height = 1;
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  std::unique_ptr<CallArguments> arguments;
  Filter filter = nullptr;
  Test test = nullptr;
  std::string unknown;  // an unknown filter or test: the error message for its use
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kData,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kGeneration,
  kBreak,
  kContinue
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: no default
};

// The parts of a macro or a caller.
struct MacroBody {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

// expressions, by kind. kOutput: the values to print; kIf: one condition per body, the last body may have none (else);
// kFor: the iterable and the condition (null: none), with bodies loop and else; kSet: the value; kSetBlock: the filter
// or null; kCallBlock: the call; kFilterBlock: the filter; kWith: one value per target.
struct Statement {
  StatementKind kind = StatementKind::kData;
  Place place;
  std::string text;
  std::vector<ExpressionPtr> expressions, targets;
  std::vector<Block> bodies;
  std::unique_ptr<MacroBody> macro;
};
}  // namespace magister::jinja
