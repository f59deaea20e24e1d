//! Beginnings of sequences that the cache still holds: a tree over blocks.
//!
//! A node is one block of the cache and the tokens in it; the path from the root to it is all that is before them, which
//! keys and values depend on. Tokens are compared, not hashes of them, so no two beginnings are ever taken for the same.
//!
//! A sequence that goes on from a path holds all blocks of it. So a block that the tree alone holds has only such blocks
//! below it, and room is made by giving up leaves, the least recently used first.
//!
//! A recurrent state cannot be read off blocks. Nodes at which a copy of the states was made have a slot, and of models with
//! recurrent states only paths to such nodes are of use.

use std::collections::{BTreeSet, HashMap};

use cera_backend::{BLOCK, BlockId, SlotId};

use crate::blocks::{BlockPool, BlockTable};

type Tokens = [u32; BLOCK];

/// Index of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct NodeId(usize);

#[derive(Debug)]
struct Node {
    parent: Option<NodeId>,
    tokens: Tokens,
    block: BlockId,
    children: HashMap<Tokens, NodeId>,
    /// When a sequence last went along here.
    used: u64,
    /// The states behind the node's last token.
    states: Option<SlotId>,
}

/// The tree.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    pool: BlockPool,
    /// Unused places are `None`, and listed in `vacant`.
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: HashMap<Tokens, NodeId>,
    /// Nodes without children, by the time of their use.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Nodes that have states, likewise.
    stateful: BTreeSet<(u64, NodeId)>,
    /// Slots for states that no node has.
    slots: Vec<SlotId>,
    /// Whether the model has recurrent states.
    recurrent: bool,
    clock: u64,
}

/// What the tree has of a sequence.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Found {
    /// The blocks of its first tokens that can be gone on from.
    pub blocks: Vec<BlockId>,
    /// The states behind them, where the model has any.
    pub states: Option<SlotId>,
    /// How many tokens the tree knows, be they of use or not.
    pub known: usize,
}

impl Found {
    /// Tokens that can be gone on from.
    pub fn tokens(&self) -> usize {
        self.blocks.len() * BLOCK
    }
}

impl PrefixTree {
    /// An empty tree over a pool's blocks. Of a model with recurrent states it has these slots for copies of them.
    pub fn new(pool: &BlockPool, slots: Option<Vec<SlotId>>) -> Self {
        Self {
            pool: pool.clone(),
            nodes: Vec::new(),
            vacant: Vec::new(),
            roots: HashMap::new(),
            leaves: BTreeSet::new(),
            stateful: BTreeSet::new(),
            recurrent: slots.is_some(),
            slots: slots.unwrap_or_default(),
            clock: 0,
        }
    }

    /// The longest beginning of `tokens`, in whole blocks, that the tree has.
    pub fn find(&self, tokens: &[u32]) -> Found {
        let path = self.path(tokens);
        let useful = match self.recurrent {
            false => path.len(),
            true => path.iter().rposition(|node| node.states.is_some()).map_or(0, |i| i + 1),
        };
        let known = path.len() * BLOCK;
        let path = path.get(..useful).unwrap_or_default();
        Found {
            blocks: path.iter().map(|node| node.block).collect(),
            states: path.last().and_then(|node| node.states),
            known,
        }
    }

    /// The blocks of the longest beginning of `tokens` that the tree knows, be they of use or not.
    pub fn path_blocks(&self, tokens: &[u32]) -> Vec<BlockId> {
        self.path(tokens).iter().map(|node| node.block).collect()
    }

    /// Notes that a sequence goes on from here.
    pub fn touch(&mut self, tokens: &[u32]) {
        self.clock += 1;
        let (mut blocks, mut at) = (tokens.chunks_exact(BLOCK), None);
        while let Some(id) = blocks.next().and_then(|t| self.child(at, t)) {
            self.use_now(id);
            at = Some(id);
        }
    }

    /// Keeps the blocks of a sequence whose first `tokens` are stored in `table`. Where the tree has a block of the same
    /// tokens, the sequence gets that one in place of its own.
    pub fn keep(&mut self, tokens: &[u32], table: &mut BlockTable) {
        self.clock += 1;
        let mut at = None;
        for (i, tokens) in tokens.chunks_exact(BLOCK).enumerate() {
            let (Some(&block), Ok(tokens)) = (table.blocks().get(i), Tokens::try_from(tokens)) else {
                return;
            };
            let id = match self.child(at, &tokens) {
                Some(id) => {
                    let kept = self.node(id).map_or(block, |node| node.block);
                    table.replace(i, kept);
                    id
                }
                None => {
                    self.pool.keep(block);
                    self.add(at, tokens, block)
                }
            };
            self.use_now(id);
            at = Some(id);
        }
    }

    /// The slot to copy the states behind `tokens` to, which are whole blocks that the tree has; none where it has the
    /// states already, or no slot. The node that went unused for longest gives up its own where there is none left.
    pub fn keep_states(&mut self, tokens: &[u32]) -> Option<SlotId> {
        let mut at = None;
        for tokens in tokens.chunks_exact(BLOCK) {
            at = Some(self.child(at, tokens)?);
        }
        let id = at?;
        if self.node(id)?.states.is_some() {
            return None;
        }
        if self.slots.is_empty() {
            let &(_, oldest) = self.stateful.first()?;
            self.drop_states(oldest);
        }
        let slot = self.slots.pop()?;
        let node = self.node_mut(id)?;
        node.states = Some(slot);
        let used = node.used;
        self.stateful.insert((used, id));
        Some(slot)
    }

    /// Gives up blocks that the tree alone holds until `count` have become free, or none is left.
    pub fn evict(&mut self, count: usize) {
        for _ in 0..count {
            let idle =
                |(_, id): &&(u64, NodeId)| self.node(*id).is_some_and(|node| !self.pool.in_use(node.block));
            let Some(&(_, id)) = self.leaves.iter().find(idle) else { return };
            self.remove(id);
        }
    }

    /// Nodes, each of which is a block.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.nodes.iter().flatten().count()
    }

    fn path(&self, tokens: &[u32]) -> Vec<&Node> {
        let (mut path, mut at) = (Vec::new(), None);
        for tokens in tokens.chunks_exact(BLOCK) {
            let Some(id) = self.child(at, tokens) else { break };
            path.extend(self.node(id));
            at = Some(id);
        }
        path
    }

    fn child(&self, at: Option<NodeId>, tokens: &[u32]) -> Option<NodeId> {
        let children = match at {
            None => &self.roots,
            Some(id) => &self.node(id)?.children,
        };
        children.get(tokens).copied()
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)?.as_ref()
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0)?.as_mut()
    }

    fn add(&mut self, parent: Option<NodeId>, tokens: Tokens, block: BlockId) -> NodeId {
        let used = self.clock;
        let node = Node { parent, tokens, block, children: HashMap::new(), used, states: None };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            NodeId(self.nodes.len() - 1)
        });
        if let Some(place) = self.nodes.get_mut(id.0) {
            *place = Some(node);
        }
        self.leaves.insert((used, id));
        match parent {
            None => {
                self.roots.insert(tokens, id);
            }
            Some(parent) => {
                if let Some(node) = self.node_mut(parent) {
                    node.children.insert(tokens, id);
                    let key = (node.used, parent);
                    self.leaves.remove(&key);
                }
            }
        }
        id
    }

    fn use_now(&mut self, id: NodeId) {
        let now = self.clock;
        let Some(node) = self.node_mut(id) else { return };
        let before = std::mem::replace(&mut node.used, now);
        for set in [&mut self.leaves, &mut self.stateful] {
            if set.remove(&(before, id)) {
                set.insert((now, id));
            }
        }
    }

    /// Removes a leaf.
    fn remove(&mut self, id: NodeId) {
        self.drop_states(id);
        let Some(node) = self.nodes.get_mut(id.0).and_then(Option::take) else { return };
        self.vacant.push(id);
        self.leaves.remove(&(node.used, id));
        self.pool.let_go(node.block);
        let Some(parent) = node.parent else {
            self.roots.remove(&node.tokens);
            return;
        };
        if let Some(above) = self.node_mut(parent) {
            above.children.remove(&node.tokens);
            if above.children.is_empty() {
                let key = (above.used, parent);
                self.leaves.insert(key);
            }
        }
    }

    fn drop_states(&mut self, id: NodeId) {
        let Some(node) = self.node_mut(id) else { return };
        let (states, used) = (node.states.take(), node.used);
        self.stateful.remove(&(used, id));
        self.slots.extend(states);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `blocks` blocks of tokens; the same `name` begins with the same.
    fn tokens(name: &str, blocks: usize) -> Vec<u32> {
        (0..blocks).flat_map(|i| vec![name.as_bytes().get(i).map_or(0, |&b| u32::from(b)); BLOCK]).collect()
    }

    /// Stores a sequence in blocks of its own, keeps it, and lets go of it.
    fn store(tree: &mut PrefixTree, pool: &BlockPool, tokens: &[u32]) -> Vec<u32> {
        let mut table = pool.table();
        if table.missing(tokens.len()) > pool.free() {
            tree.evict(table.missing(tokens.len()) - pool.free());
        }
        table.grow(tokens.len()).unwrap();
        tree.keep(tokens, &mut table);
        table.blocks().iter().map(|b| b.0).collect()
    }

    fn found(tree: &PrefixTree, tokens: &[u32]) -> Vec<u32> {
        tree.find(tokens).blocks.iter().map(|b| b.0).collect()
    }

    #[test]
    fn what_begins_alike_is_found_in_whole_blocks() {
        let pool = BlockPool::new(8);
        let mut tree = PrefixTree::new(&pool, None);
        store(&mut tree, &pool, &tokens("abc", 3));
        assert_eq!((pool.free(), pool.idle()), (5, 3));
        assert_eq!(found(&tree, &tokens("abd", 3)), [0, 1]);
        assert_eq!(found(&tree, &tokens("abc", 3)[..3 * BLOCK - 1]), [0, 1]);
        assert!(found(&tree, &tokens("bc", 2)).is_empty());
        // What is there already is not stored twice: the sequence has the tree's blocks then, and its own are free.
        assert_eq!(store(&mut tree, &pool, &tokens("abx", 3))[..2], [0, 1]);
        assert_eq!((tree.len(), pool.idle(), pool.free()), (4, 4, 4));
    }

    #[test]
    fn leaves_go_first_and_of_those_the_least_recently_used() {
        let pool = BlockPool::new(5);
        let mut tree = PrefixTree::new(&pool, None);
        store(&mut tree, &pool, &tokens("ab", 2));
        store(&mut tree, &pool, &tokens("cd", 2));
        tree.touch(&tokens("ab", 2));
        tree.evict(1);
        assert_eq!(found(&tree, &tokens("cd", 2)).len(), 1);
        tree.evict(1);
        assert_eq!((found(&tree, &tokens("cd", 2)).len(), found(&tree, &tokens("ab", 2)).len()), (0, 2));
        // A sequence holds the rest.
        let mut table = pool.table();
        table.share(&tree.find(&tokens("ab", 2)).blocks);
        tree.evict(9);
        assert_eq!((tree.len(), pool.free()), (2, 3));
        drop(table);
        tree.evict(9);
        assert_eq!((tree.len(), pool.free(), pool.idle()), (0, 5, 0));
    }

    #[test]
    fn recurrent_models_go_on_where_their_states_are() {
        let pool = BlockPool::new(9);
        let mut tree = PrefixTree::new(&pool, Some(vec![SlotId(8), SlotId(7)]));
        let long = tokens("abcd", 4);
        store(&mut tree, &pool, &long);
        assert_eq!(tree.find(&long), Found { known: 4 * BLOCK, ..Found::default() });
        assert_eq!(tree.keep_states(&long[..2 * BLOCK]), Some(SlotId(7)));
        assert_eq!(tree.keep_states(&long[..2 * BLOCK]), None);
        let got = tree.find(&long);
        assert_eq!((got.tokens(), got.states, got.known), (2 * BLOCK, Some(SlotId(7)), 4 * BLOCK));
        // The third copy takes the slot of the one that was used least recently.
        assert_eq!(tree.keep_states(&long), Some(SlotId(8)));
        store(&mut tree, &pool, &tokens("x", 1));
        tree.touch(&long[..2 * BLOCK]);
        assert_eq!(tree.keep_states(&tokens("x", 1)), Some(SlotId(8)));
        assert_eq!(tree.find(&long).tokens(), 2 * BLOCK);
        // A node takes its states with it.
        tree.evict(9);
        assert_eq!((tree.len(), tree.slots.len()), (0, 2));
        assert_eq!(tree.keep_states(&long), None);
    }

    #[test]
    fn random_use_loses_no_block() {
        let pool = BlockPool::new(12);
        let mut tree = PrefixTree::new(&pool, None);
        let mut x = 1u64;
        let mut below = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        for _ in 0..2000 {
            let name: String = (0..1 + below(6)).map(|_| char::from(b'a' + below(2) as u8)).collect();
            let tokens = tokens(&name, name.len());
            let after = store(&mut tree, &pool, &tokens);
            assert_eq!(found(&tree, &tokens), after);
            assert_eq!((pool.free() + pool.idle(), tree.len()), (12, pool.idle()));
            let leaves = tree.nodes.iter().flatten().filter(|n| n.children.is_empty()).count();
            assert_eq!(tree.leaves.len(), leaves);
        }
    }
}
