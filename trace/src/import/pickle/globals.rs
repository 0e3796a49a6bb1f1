//! The names that a pickle may say, and what a call of one means.

use karat_model::{Error, Result};

use super::{Id, Node, Storage, Tensor};

/// What to do about a file that says more.
pub(crate) const HINT: &str =
    "karat reads tensors, dicts, lists and numbers only; write the tensors with safetensors.torch.save_file instead";

/// A name that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Global {
    OrderedDict,
    /// `_rebuild_tensor_v2`: the storage has a type.
    TensorV2,
    /// `_rebuild_tensor_v3`: an untyped storage and a dtype.
    TensorV3,
    Parameter,
    Size,
    Device,
    /// A storage class with the element type's name.
    Storage(&'static str),
    Untyped,
    /// An element type.
    Dtype(&'static str),
}

/// Storage classes of torch and their element types.
const STORAGES: &[(&str, &str)] = &[
    ("FloatStorage", "float32"),
    ("DoubleStorage", "float64"),
    ("HalfStorage", "float16"),
    ("BFloat16Storage", "bfloat16"),
    ("Float8_e4m3fnStorage", "float8_e4m3fn"),
    ("Float8_e5m2Storage", "float8_e5m2"),
    ("LongStorage", "int64"),
    ("IntStorage", "int32"),
    ("ShortStorage", "int16"),
    ("CharStorage", "int8"),
    ("ByteStorage", "uint8"),
    ("BoolStorage", "bool"),
    ("ComplexFloatStorage", "complex64"),
    ("ComplexDoubleStorage", "complex128"),
];

/// Element types by name. Some are only known by name: their tensors are listed, not read.
const DTYPES: &[&str] = &[
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float4_e2m1fn_x2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    "complex32",
];

impl Global {
    /// The name, if it is read; else an error with its name.
    pub(crate) fn named(module: &str, name: &str) -> Result<Self> {
        let found = match (module, name) {
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::TensorV2),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Self::TensorV3),
            ("torch._utils", "_rebuild_parameter") => Some(Self::Parameter),
            ("torch.storage", "UntypedStorage") => Some(Self::Untyped),
            ("torch", "Size") => Some(Self::Size),
            ("torch", "device") => Some(Self::Device),
            ("torch", name) => {
                let storage = STORAGES.iter().find(|(class, _)| *class == name).map(|(_, dtype)| Self::Storage(dtype));
                storage.or_else(|| DTYPES.iter().find(|dtype| **dtype == name).map(|dtype| Self::Dtype(dtype)))
            }
            _ => None,
        };
        found.ok_or_else(|| {
            Error::input("pickle names a global that is not read").found(format!("{module}.{name}")).hint(HINT)
        })
    }
}

fn get<'n, 'a>(nodes: &'n [Node<'a>], id: Id) -> &'n Node<'a> {
    nodes.get(id as usize).unwrap_or(&Node::Other)
}

fn tuple<'n>(nodes: &'n [Node<'_>], id: Id) -> Result<&'n [Id]> {
    match get(nodes, id) {
        Node::Tuple(items) => Ok(items),
        _ => Err(Error::input("pickle calls with what is no tuple")),
    }
}

/// The storage that a persistent id stands for: `("storage", class, key, location, numel)`.
pub(super) fn storage<'a>(nodes: &[Node<'a>], id: Id) -> Result<Storage<'a>> {
    let items: Vec<&Node<'a>> = tuple(nodes, id)?.iter().map(|id| get(nodes, *id)).collect();
    let (dtype, key, len) = match items.as_slice() {
        [Node::Text("storage"), Node::Global(Global::Storage(dtype)), Node::Text(key), _, Node::Int(len)] => {
            (Some(*dtype), *key, *len)
        }
        [Node::Text("storage"), Node::Global(Global::Untyped), Node::Text(key), _, Node::Int(len)] => {
            (None, *key, *len)
        }
        _ => return Err(Error::input("pickle refers to something that is no storage").hint(HINT)),
    };
    let len = usize::try_from(len).map_err(|_| Error::input("storage has a negative size").found(len))?;
    Ok(Storage { key, dtype, len })
}

/// What a call gives.
pub(super) fn call<'a>(nodes: &[Node<'a>], callee: Id, args: Id) -> Result<Node<'a>> {
    let Node::Global(global) = get(nodes, callee) else {
        return Err(Error::input("pickle calls what is no function").hint(HINT));
    };
    let args = tuple(nodes, args)?;
    let wrong = || {
        Error::input("call in the pickle has other arguments than torch gives").found(format!("{global:?}")).hint(HINT)
    };
    match global {
        Global::OrderedDict => match args {
            [] => Ok(Node::Dict(Vec::new())),
            [items] => {
                let Node::List(items) = get(nodes, *items) else { return Err(wrong()) };
                let pair = |id: &Id| match get(nodes, *id) {
                    Node::Tuple(pair) | Node::List(pair) => {
                        <[Id; 2]>::try_from(pair.as_slice()).ok().map(|[k, v]| (k, v))
                    }
                    _ => None,
                };
                Ok(Node::Dict(items.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)?))
            }
            _ => Err(wrong()),
        },
        Global::TensorV2 if (5..=7).contains(&args.len()) => {
            let Node::Storage(storage) = get(nodes, args[0]) else { return Err(wrong()) };
            tensor(nodes, storage, storage.dtype.ok_or_else(wrong)?, args)
        }
        Global::TensorV3 if (7..=8).contains(&args.len()) => {
            let (Node::Storage(storage), Node::Global(Global::Dtype(dtype))) =
                (get(nodes, args[0]), get(nodes, args[6]))
            else {
                return Err(wrong());
            };
            tensor(nodes, storage, dtype, args)
        }
        Global::Parameter => match args.first().map(|id| get(nodes, *id)) {
            Some(Node::Tensor(tensor)) => Ok(Node::Tensor(tensor.clone())),
            _ => Err(wrong()),
        },
        Global::Size => match args.first().map(|id| get(nodes, *id)) {
            Some(Node::Tuple(items)) => Ok(Node::Tuple(items.clone())),
            _ => Err(wrong()),
        },
        Global::Device => Ok(Node::Other),
        _ => Err(wrong()),
    }
}

fn tensor<'a>(nodes: &[Node<'a>], storage: &Storage<'a>, dtype: &'static str, args: &[Id]) -> Result<Node<'a>> {
    let size = |id: &Id| match get(nodes, *id) {
        Node::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    };
    let sizes = |id: Id| {
        let items = tuple(nodes, id).ok().filter(|items| items.len() <= super::MAX_AXES)?;
        items.iter().map(size).collect::<Option<Vec<usize>>>()
    };
    let (Some(offset), Some(shape), Some(strides)) = (size(&args[1]), sizes(args[2]), sizes(args[3])) else {
        return Err(Error::input("tensor's shape, steps or start are no counts"));
    };
    Ok(Node::Tensor(Box::new(Tensor { storage: storage.clone(), dtype, offset, shape, strides })))
}
