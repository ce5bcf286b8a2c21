//! The signature of a probed function, from the CUDA tables or from the debug information of its file.

use std::fmt;
use std::sync::Arc;

use crate::catalog::debug_info;
use crate::types::type_ref::TypeRef;

/// A function as somebody declares it.
#[derive(Clone, Debug)]
pub enum Declared {
    /// In the CUDA tables.
    Cuda(&'static cuda::Signature),
    /// In the file's debug information.
    Debug(Arc<debug_info::Function>),
}

impl Declared {
    /// Names and types of the parameters, in order.
    pub fn params(&self) -> Vec<(&str, TypeRef)> {
        match self {
            Declared::Cuda(known) => known.params.iter().map(|p| (p.name, TypeRef::Cuda(p.ty))).collect(),
            Declared::Debug(function) => {
                function.params.iter().map(|p| (p.name.as_str(), TypeRef::Debug(p.ty))).collect()
            }
        }
    }

    /// The parameter of a name: its number and its type.
    pub fn param(&self, name: &str) -> Option<(usize, TypeRef)> {
        let params = self.params().into_iter().enumerate();
        params
            .map(|(at, (known, ty))| (known, at, ty))
            .find(|(known, ..)| *known == name)
            .map(|(_, at, ty)| (at, ty))
    }

    /// The type of the result.
    pub fn ret(&self) -> TypeRef {
        match self {
            Declared::Cuda(known) => TypeRef::Cuda(known.ret),
            Declared::Debug(function) => function.ret.map_or(TypeRef::Void, TypeRef::Debug),
        }
    }

    /// The row of the CUDA tables.
    pub fn cuda(&self) -> Option<&'static cuda::Signature> {
        match self {
            Declared::Cuda(known) => Some(known),
            Declared::Debug(_) => None,
        }
    }

    /// The caller says where the result goes, whatever the type of it.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Declared::Debug(function) if function.hidden)
    }

    /// From which parameter on nobody can tell where arguments lie, and why.
    pub fn unsure(&self) -> Option<&debug_info::Unsure> {
        match self {
            Declared::Cuda(_) => None,
            Declared::Debug(function) => function.unsure.as_ref(),
        }
    }

    /// It returns a result code of CUDA.
    pub fn returns_code(&self) -> bool {
        self.cuda().is_some_and(|known| matches!(cuda::ty(known.ret).kind, cuda::Kind::Enum(_)))
    }
}

/// As C declares it.
impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declared::Cuda(known) => known.fmt(f),
            Declared::Debug(function) => f.write_str(&function.declared),
        }
    }
}
