// The entities of the library, and what became of one of them a release later.
import jakarta.persistence.*;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.*;
import org.hibernate.annotations.Check;
import org.hibernate.annotations.ColumnDefault;
import org.hibernate.annotations.CreationTimestamp;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.annotations.NaturalId;
import org.hibernate.type.SqlTypes;

enum Shelf { UPSTAIRS, CELLAR }

@Embeddable
class Address {
    String street;
    @Column(length = 10)
    String postcode;
}

@Entity
@Table(name = "authors", uniqueConstraints = @UniqueConstraint(name = "author_email", columnNames = "email"))
class Author {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    Integer id;
    @Column(nullable = false, length = 80)
    String email;
    @Embedded
    Address address;
    @CreationTimestamp
    @Column(nullable = false)
    OffsetDateTime created;
    @ElementCollection
    @CollectionTable(name = "author_names")
    @OrderColumn
    List<String> names = new ArrayList<>();
    @OneToMany(mappedBy = "author", cascade = CascadeType.ALL, orphanRemoval = true)
    @OrderBy("title")
    List<Book> books = new ArrayList<>();

    Author() {}

    Author(String email) {
        this.email = email;
    }
}

@Entity
@Table(name = "books", indexes = {@Index(name = "book_title", columnList = "title, pages DESC"), @Index(columnList = "author_id")})
@Check(name = "book_pages", constraints = "pages > 0")
class Book {
    @Id
    @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "book_ids")
    @SequenceGenerator(name = "book_ids", sequenceName = "book_ids", allocationSize = 20)
    Long id;
    @Version
    int version;
    @Column(nullable = false)
    String title;
    int pages;
    @Column(precision = 12, scale = 2)
    BigDecimal price;
    @Enumerated(EnumType.STRING)
    Shelf shelf = Shelf.UPSTAIRS;
    LocalDate published;
    UUID code = UUID.randomUUID();
    @JdbcTypeCode(SqlTypes.JSON)
    Map<String, String> details = new HashMap<>();
    String[] tags = {};
    byte[] cover;
    @Column(columnDefinition = "text")
    String summary;
    Duration reading;
    @ManyToOne(fetch = FetchType.LAZY, optional = false)
    Author author;
    @ManyToMany(cascade = CascadeType.PERSIST)
    @JoinTable(name = "book_subjects")
    Set<Subject> subjects = new HashSet<>();

    Book() {}

    Book(Author author, String title, int pages) {
        this.author = author;
        this.title = title;
        this.pages = pages;
        author.books.add(this);
    }
}

@Entity
@Table(name = "subjects")
class Subject {
    @Id
    @GeneratedValue
    UUID id;
    @NaturalId
    @Column(nullable = false)
    String name;

    Subject() {}

    Subject(String name) {
        this.name = name;
    }
}

@Entity
@Inheritance(strategy = InheritanceType.JOINED)
@Table(name = "media")
class Medium {
    @Id
    @GeneratedValue
    Long id;
    String label;
}

@Entity
@Table(name = "films")
class Film extends Medium {
    int minutes;
}

@Entity
@Table(name = "records")
class Recording extends Medium {
    @Column(name = "is_live")
    boolean live;
}

@Entity(name = "Subject")
@Table(name = "subjects", indexes = @Index(name = "subject_rank", columnList = "rank"))
class LaterSubject {
    @Id
    @GeneratedValue
    UUID id;
    @NaturalId
    @Column(nullable = false)
    String name;
    @Column(nullable = false)
    @ColumnDefault("1")
    short rank = 1;
    @ManyToOne
    LaterSubject parent;
}
