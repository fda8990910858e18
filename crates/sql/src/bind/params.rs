//! Types of parameters, inferred from where they are used.

use super::Binder;
use crate::plan::{Expr, Plan};
use sql_types::{SqlError, SqlResult, SqlState, Type};

/// What is known of the parameters' types.
pub(crate) struct Params {
    types: Vec<Type>,
    /// Highest parameter the statement mentions.
    mentioned: usize,
}

impl Params {
    pub(crate) fn new(declared: &[Type], mentioned: usize) -> Self {
        let mut types: Vec<Type> =
            declared.iter().map(|ty| if ty.0 == 0 { Type::UNKNOWN } else { *ty }).collect();
        types.resize(types.len().max(mentioned), Type::UNKNOWN);
        Params { types, mentioned }
    }

    /// The type as far as it is known; `None` for a parameter that does not exist.
    pub(crate) fn get(&self, index: usize) -> Option<Type> {
        self.types.get(index).copied()
    }

    fn set(&mut self, index: usize, ty: Type) {
        if let Some(slot) = self.types.get_mut(index) {
            *slot = ty;
        }
    }

    /// The final types; 42P18 where nothing decided.
    pub(crate) fn finish(&mut self) -> SqlResult<Vec<Type>> {
        if let Some(index) = self.types.iter().position(|ty| *ty == Type::UNKNOWN)
            && index < self.mentioned
        {
            return Err(SqlError::new(
                SqlState::INDETERMINATE_DATATYPE,
                format!("could not determine data type of parameter ${}", index + 1),
            ));
        }
        for ty in &mut self.types {
            if *ty == Type::UNKNOWN {
                *ty = Type::TEXT;
            }
        }
        Ok(self.types.clone())
    }
}

impl Binder<'_> {
    /// Parameter `index`, counted from 0.
    pub(crate) fn param(&self, index: usize) -> SqlResult<Expr> {
        match self.params.borrow().get(index) {
            Some(ty) => Ok(Expr::Param(index, ty)),
            None => Err(SqlError::new(
                SqlState::UNDEFINED_PARAMETER,
                format!("there is no parameter ${}", index + 1),
            )),
        }
    }

    /// Gives a parameter its type. If it already has another one, a cast from that stands in.
    pub(crate) fn settle_param(&self, index: usize, ty: Type) -> Expr {
        let mut params = self.params.borrow_mut();
        match params.get(index) {
            Some(known) if known != Type::UNKNOWN && known != ty => {
                Expr::Cast { expr: Box::new(Expr::Param(index, known)), to: ty.into(), explicit: false }
            }
            _ => {
                params.set(index, ty);
                Expr::Param(index, ty)
            }
        }
    }

    /// Gives references that were bound before the type was known their type.
    pub(crate) fn settle_params(&self, plan: &mut Plan) {
        let params = self.params.borrow();
        if params.types.is_empty() {
            return;
        }
        settle(&params, plan);
    }
}

fn settle(params: &Params, plan: &mut Plan) {
    plan.for_each_expr_mut(&mut |expr| {
        expr.replace(&mut |part| match part {
            Expr::Param(index, Type::UNKNOWN) => params.get(*index).map(|ty| Expr::Param(*index, ty)),
            _ => None,
        });
    });
    plan.for_each_child_mut(&mut |child, _| settle(params, child));
}
